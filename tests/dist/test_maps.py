"""One map whatever the number of processes; rows in all forms; errors that reach all. gloo over the loopback device."""

import numpy
import pytest

pytestmark = pytest.mark.dist

BITWISE = ("UMAP", "LargeVis", "PACMAP")
STEPS_APART = 1e-4
"""Of the map's scale after 10 steps, for the methods whose sums are added up in another order."""


def all_well(job):
    """Every check of a script went well in every process."""
    for rank, found in enumerate(job.told()):
        wrong = {name: said for name, said in found.items() if said != "well"}
        assert not wrong, f"process {rank} of {job.processes}:\n" + "\n".join(f"{k}: {v}" for k, v in wrong.items())


def compared(alone, together):
    """How far each array is from that of one process, in its scale."""
    assert set(alone) == set(together)
    for name, one in alone.items():
        other = together[name]
        assert one.shape == other.shape
        assert numpy.isfinite(one).all()
        if name.endswith(", loss"):
            numpy.testing.assert_allclose(other, one, rtol=1e-5, err_msg=name)
        elif name.startswith(BITWISE):
            numpy.testing.assert_array_equal(other, one, err_msg=name)
        else:
            apart = float(numpy.abs(one - other).max() / one.std())
            assert apart <= STEPS_APART, (name, apart)


def test_the_same_map_for_1_2_and_4_processes(launch, tmp_path):
    alone = dict(numpy.load(launch("maps.py", 1, tmp_path / "1").folder / "0.npz"))
    for processes in (2, 4):
        job = launch("maps.py", processes, tmp_path / str(processes))
        for rank in range(processes):
            compared(alone, dict(numpy.load(job.folder / f"{rank}.npz")))


@pytest.mark.parametrize(
    "processes", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_rows_in_all_forms(launch, tmp_path, processes):
    all_well(launch("inputs.py", processes, tmp_path, limit=300))


@pytest.mark.parametrize(
    "processes", [3, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_errors_of_one_reach_all(launch, tmp_path, processes):
    all_well(launch("failures.py", processes, tmp_path))


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_encoders(launch, tmp_path, processes):
    all_well(launch("encoders.py", processes, tmp_path))


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_groups_and_bytes(launch, tmp_path, processes):
    all_well(launch("groups.py", processes, tmp_path))
