"""Neighbour search, and the graphs made of neighbours."""

from cartograd.neighbors.distances import METRICS as METRICS
from cartograd.neighbors.faiss_index import FaissConfig as FaissConfig
from cartograd.neighbors.searching import search as search

__all__ = ["METRICS", "FaissConfig", "search"]
