"""How good a map is: of its neighbourhoods, its classes and its distances. All in tiles, on CPU or CUDA."""

from cartograd.metrics.clustering import adjusted_rand_score as adjusted_rand_score
from cartograd.metrics.clustering import kmeans_ari as kmeans_ari
from cartograd.metrics.correlation import distance_correlation as distance_correlation
from cartograd.metrics.neighborhoods import continuity as continuity
from cartograd.metrics.neighborhoods import neighborhood_preservation as neighborhood_preservation
from cartograd.metrics.neighborhoods import trustworthiness as trustworthiness
from cartograd.metrics.silhouette import silhouette_samples as silhouette_samples
from cartograd.metrics.silhouette import silhouette_score as silhouette_score
from cartograd.metrics.triplets import random_triplet_accuracy as random_triplet_accuracy
from cartograd.metrics.voting import knn_label_accuracy as knn_label_accuracy

__all__ = [
    "adjusted_rand_score",
    "continuity",
    "distance_correlation",
    "kmeans_ari",
    "knn_label_accuracy",
    "neighborhood_preservation",
    "random_triplet_accuracy",
    "silhouette_samples",
    "silhouette_score",
    "trustworthiness",
]
