"""The forces of the neighbour embeddings, as functions of plain tensors: exact in tiles, or by Fourier transform.

Every function gives the same bits for any number of threads while `cartograd.neighbors.workers.all_cores` is held.
"""
