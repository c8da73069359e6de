import force_oracle as oracle
import numpy
import pytest
import torch

from cartograd.embedding.forces import edges, exact
from cartograd.embedding.forces.edges import EdgeBlocks
from cartograd.neighbors import Graph
from cartograd.neighbors.workers import all_cores

CPU = torch.device("cpu")


def symmetric(n, seed=0, hubs=3, dtype=torch.float64):
    """A random symmetric graph of total 1 with uneven degrees and a row without edges."""
    draw = oracle.drawn(seed)
    dense = torch.rand(n, n, generator=draw, dtype=torch.float64)
    dense = dense * (torch.rand(n, n, generator=draw, dtype=torch.float64) < 0.2)
    dense[:hubs] = torch.rand(hubs, n, generator=draw, dtype=torch.float64)
    dense.fill_diagonal_(0)
    dense[n - 1] = dense[:, n - 1] = 0
    dense = (dense + dense.T) / (2 * dense.sum())
    rows, columns = torch.nonzero(dense, as_tuple=True)
    return dense, Graph.from_edges(rows, columns, dense[rows, columns].to(dtype), n)


LOSSES = {"tsne": lambda s: torch.log(1 + s), "sne": lambda s: s}


@pytest.mark.parametrize("c", [1, 2, 3, 6])
@pytest.mark.parametrize("name", oracle.NAMES)
@pytest.mark.parametrize("method", ["tsne", "sne"])
def test_gradients_are_the_engines(method, name, c):
    Z = oracle.layouts(c)[name]
    P, graph = symmetric(40)
    expected, value = oracle.gradient(lambda Z: (P * LOSSES[method](oracle.squared(Z))).sum(), Z)
    blocks = EdgeBlocks.of(graph)
    found = getattr(edges, f"{method}_attraction")(Z, blocks)
    assert float(getattr(edges, f"{method}_attraction_loss")(Z, blocks)) == pytest.approx(value, rel=1e-12)
    assert oracle.relative(found, expected) < 1e-10 if expected.any() else not found.any()


def test_a_slope_of_ones_own():
    Z = oracle.layouts(2)["random"]
    P, graph = symmetric(40)
    expected, _ = oracle.gradient(lambda Z: (P * torch.sqrt(1 + oracle.squared(Z))).sum(), Z)
    found = EdgeBlocks.of(graph).pull(Z, lambda s: 0.5 / torch.sqrt(1 + s))
    assert oracle.relative(found, expected) < 1e-10


@pytest.mark.parametrize("method", ["tsne", "sne"])
def test_queries_against_fixed_points(method):
    points, queries = oracle.layouts(2)["random"], oracle.layouts(2, 23, seed=1)["random"]
    draw = oracle.drawn(2)
    indices = torch.randint(0, 40, (23, 5), generator=draw)
    weights = torch.rand(23, 5, generator=draw, dtype=torch.float64)

    def loss(X):
        s = (X[:, None, :] - points[indices]).square().sum(-1)
        return (weights * LOSSES[method](s)).sum()

    expected, value = oracle.gradient(loss, queries)
    blocks = EdgeBlocks.of_lists(indices, weights)
    assert oracle.relative(getattr(edges, f"{method}_attraction")(queries, blocks, points), expected) < 1e-10
    total = getattr(edges, f"{method}_attraction_loss")(queries, EdgeBlocks.of_lists(indices, weights), points)
    assert float(total) == pytest.approx(value, rel=1e-12)


def test_t_snes_gradient_and_divergence_are_scikit_learns():
    from scipy.spatial.distance import squareform
    from sklearn.manifold._t_sne import _kl_divergence

    Z = oracle.layouts(2, 60)["random"]
    P, graph = symmetric(60)
    flat = squareform(P.numpy(), checks=False)
    theirs_value, theirs = _kl_divergence(Z.numpy().ravel(), numpy.maximum(flat, 1e-300), 1.0, 60, 2)
    blocks = EdgeBlocks.of(graph)
    push, total = exact.tsne_repulsion(Z)
    found = edges.tsne_attraction(Z, blocks) + push
    assert oracle.relative(found, torch.from_numpy(theirs).view(60, 2)) < 1e-6
    entropy = float((graph.weights * torch.log(graph.weights)).sum())
    ours = entropy + float(edges.tsne_attraction_loss(Z, blocks)) + float(torch.log(total))
    assert ours == pytest.approx(theirs_value, rel=1e-6)


@pytest.mark.parametrize(("most", "least"), [(40, 15), (1000, 3)])
def test_blocks_hold_every_edge_once_and_little_else(monkeypatch, most, least):
    monkeypatch.setattr(edges, "BLOCK", most)
    P, graph = symmetric(40)
    blocks = EdgeBlocks.of(graph).blocks
    assert len(blocks) >= least
    dense = torch.zeros_like(P)
    for block in blocks:
        dense.index_put_((block.rows[:, None].expand(block.columns.shape), block.columns.long()), block.weights, True)
        assert block.columns.numel() <= max(most, block.columns.shape[1])
        assert bool((block.weights > 0).sum(1).min() >= 0.75 * block.weights.shape[1])
    assert torch.equal(dense, P)
    rows = torch.cat([block.rows for block in blocks])
    assert sorted(rows.tolist()) == list(range(39))


def test_a_graph_without_edges():
    empty = torch.zeros(0, dtype=torch.int64)
    blocks = EdgeBlocks.of(Graph(torch.zeros(4, dtype=torch.int64), empty, empty.to(torch.float32)))
    Z = torch.ones(3, 2)
    assert edges.tsne_attraction(Z, blocks).tolist() == [[0.0, 0.0]] * 3
    assert float(edges.tsne_attraction_loss(Z, blocks)) == 0


def test_the_same_bits_at_any_thread_count(threads):
    _, graph = symmetric(1500, dtype=torch.float32)
    Z = oracle.layouts(2, 1500)["random"].to(torch.float32)
    blocks, runs = EdgeBlocks.of(graph), []
    assert len(blocks.blocks) > 4
    for count in (1, 2, 4, 1):
        threads(count)
        with all_cores(CPU):
            runs.append((edges.tsne_attraction(Z, blocks), edges.tsne_attraction_loss(Z, blocks)))
    for run in runs[1:]:
        assert torch.equal(run[0], runs[0][0])
        assert torch.equal(run[1], runs[0][1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_does_not_see_the_others(dtype):
    draw = oracle.drawn(5)
    points, queries = torch.randn(500, 3, generator=draw, dtype=dtype), torch.randn(301, 3, generator=draw, dtype=dtype)
    indices, weights = torch.randint(0, 500, (301, 7), generator=draw), torch.rand(301, 7, generator=draw, dtype=dtype)

    def at(rows):
        return edges.tsne_attraction(queries[rows], EdgeBlocks.of_lists(indices[rows], weights[rows]), points)

    whole, order = at(torch.arange(301)), torch.randperm(301, generator=draw)
    assert torch.equal(at(order), whole[order])
    for row in (0, 150, 300):
        assert torch.equal(at(torch.tensor([row])), whole[row : row + 1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_cpu_and_itself():
    _, graph = symmetric(1500, dtype=torch.float32)
    Z = oracle.layouts(2, 1500)["random"].to(torch.float32)
    expected = edges.tsne_attraction(Z, EdgeBlocks.of(graph))
    blocks = EdgeBlocks.of(graph.to("cuda"))
    runs = [edges.tsne_attraction(Z.cuda(), blocks) for _ in range(3)]
    assert oracle.relative(runs[0].cpu(), expected) < 1e-5
    assert all(torch.equal(run, runs[0]) for run in runs)
