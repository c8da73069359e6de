"""Hand-written kernels: `cpu` compiled by numba, `gpu` by Triton. Nothing here imports any other part of cartograd."""
