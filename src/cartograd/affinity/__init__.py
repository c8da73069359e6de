"""Affinities: how alike rows are, as weighted graphs or matrices."""

from cartograd.affinity.entropic import EntropicAffinity as EntropicAffinity
from cartograd.affinity.entropic import joint_probabilities as joint_probabilities
from cartograd.affinity.entropic_rows import entropic_rows as entropic_rows
from cartograd.affinity.fuzzy import fuzzy_union as fuzzy_union
from cartograd.affinity.fuzzy import smooth_distances as smooth_distances
from cartograd.affinity.kernel import GaussianAffinity as GaussianAffinity
from cartograd.affinity.kernel import StudentAffinity as StudentAffinity
from cartograd.affinity.local_scale import MAGICAffinity as MAGICAffinity
from cartograd.affinity.local_scale import SelfTuningAffinity as SelfTuningAffinity
from cartograd.affinity.loggraph import LogGraph as LogGraph
from cartograd.affinity.normalized import NormalizedGaussianAffinity as NormalizedGaussianAffinity
from cartograd.affinity.normalized import NormalizedStudentAffinity as NormalizedStudentAffinity
from cartograd.affinity.pacmap import PACMAPAffinity as PACMAPAffinity
from cartograd.affinity.pairs import far_pairs as far_pairs
from cartograd.affinity.pairs import mid_near_pairs as mid_near_pairs
from cartograd.affinity.phate import PHATEAffinity as PHATEAffinity
from cartograd.affinity.quadratic import DoublyStochasticQuadraticAffinity as DoublyStochasticQuadraticAffinity
from cartograd.affinity.sinkhorn import SinkhornAffinity as SinkhornAffinity
from cartograd.affinity.supervised import categorical_intersection as categorical_intersection
from cartograd.affinity.symmetric_entropic import SymmetricEntropicAffinity as SymmetricEntropicAffinity
from cartograd.affinity.umap import UMAPAffinity as UMAPAffinity

__all__ = [
    "DoublyStochasticQuadraticAffinity",
    "EntropicAffinity",
    "GaussianAffinity",
    "LogGraph",
    "MAGICAffinity",
    "NormalizedGaussianAffinity",
    "NormalizedStudentAffinity",
    "PACMAPAffinity",
    "PHATEAffinity",
    "SelfTuningAffinity",
    "SinkhornAffinity",
    "StudentAffinity",
    "SymmetricEntropicAffinity",
    "UMAPAffinity",
    "categorical_intersection",
    "entropic_rows",
    "far_pairs",
    "fuzzy_union",
    "joint_probabilities",
    "mid_near_pairs",
    "smooth_distances",
]
