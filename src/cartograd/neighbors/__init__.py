"""Neighbour search, and the graphs made of neighbours."""

from cartograd.neighbors.distances import METRICS as METRICS
from cartograd.neighbors.faiss_index import FaissConfig as FaissConfig
from cartograd.neighbors.graph import Graph as Graph
from cartograd.neighbors.pairwise import distance_tiles as distance_tiles
from cartograd.neighbors.pairwise import pairwise_distances as pairwise_distances
from cartograd.neighbors.searching import search as search

__all__ = ["METRICS", "FaissConfig", "Graph", "distance_tiles", "pairwise_distances", "search"]
