"""Maps: estimators that place the rows of a data set in a few dimensions."""

from cartograd.embedding.base import AffinityMatcher as AffinityMatcher
from cartograd.embedding.cosne import COSNE as COSNE
from cartograd.embedding.exact_incremental_pca import ExactIncrementalPCA as ExactIncrementalPCA
from cartograd.embedding.incremental_pca import IncrementalPCA as IncrementalPCA
from cartograd.embedding.infotsne import InfoTSNE as InfoTSNE
from cartograd.embedding.kernel_pca import KernelPCA as KernelPCA
from cartograd.embedding.largevis import LargeVis as LargeVis
from cartograd.embedding.negative import NegativeSamplingNeighborEmbedding as NegativeSamplingNeighborEmbedding
from cartograd.embedding.neighbor import NeighborEmbedding as NeighborEmbedding
from cartograd.embedding.pacmap import PACMAP as PACMAP
from cartograd.embedding.parametric_options import EncoderTraining as EncoderTraining
from cartograd.embedding.pca import PCA as PCA
from cartograd.embedding.phate import PHATE as PHATE
from cartograd.embedding.sne import SNE as SNE
from cartograd.embedding.tsne import TSNE as TSNE
from cartograd.embedding.tsnekhorn import TSNEkhorn as TSNEkhorn
from cartograd.embedding.umap import UMAP as UMAP
