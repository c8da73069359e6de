"""Bits that a redesign keeps: maps, losses, counts and new rows, fitted at once, in two parts, by two processes.

`make golden` writes them, from any commit, for the machine that it runs on; a change that means to change bits says why
and writes them anew. On other machines ten steps from stored neighbors are compared instead.
"""

import json
import os
from pathlib import Path

import numpy
import pytest
import torch
from cases import CASES, all_digests, digest, fitted_in_two_parts
from launching import digests_of_two_processes
from machine_key import machine_key
from near import OWN_RANDOM_ROWS, cases, neighbors_of, steps, stored

KEPT = {
    json.dumps(one["machine"], sort_keys=True): one["digests"]
    for path in sorted((Path(__file__).parent / "machines").glob("*.json"))
    if (one := json.loads(path.read_text()))
}
HERE = KEPT.get(json.dumps(machine_key(), sort_keys=True))
known = pytest.mark.skipif(HERE is None, reason=f"no golden bits are kept for this machine: {machine_key()}")
WITHIN = 1e-4
ON_A_CARD = 1e-3


@known
@pytest.mark.cpu
@pytest.mark.parametrize("name", CASES)
def test_a_fit_has_the_bits_that_are_kept(name):
    assert all_digests([name])[name] == HERE["alone"][name]


@known
@pytest.mark.cpu
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.resumed])
def test_a_resumed_fit_has_them_too(name):
    assert all_digests([name], fitted_in_two_parts)[name] == HERE["alone"][name]


@known
@pytest.mark.dist
def test_two_processes_have_theirs(tmp_path):
    for found in digests_of_two_processes(tmp_path):
        assert found["plain"] == HERE["two processes"]["plain"]
        assert found["resumed"] == HERE["two processes"]["resumed"]


@pytest.mark.cpu
@pytest.mark.parametrize("case", cases())
def test_ten_steps_from_stored_neighbors(case):
    name, rows = cases()[case]
    arrays = stored()
    found = steps(name, rows, neighbors_of(arrays, rows))
    apart = numpy.abs(found - arrays[case]).max() / arrays[case].std()
    assert apart < WITHIN, f"{apart:.2g} of the map's spread"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("case", [one for one in cases() if one.partition(",")[0] not in OWN_RANDOM_ROWS])
def test_ten_steps_on_a_card(case):
    name, rows = cases()[case]
    arrays = stored()
    found = steps(name, rows, neighbors_of(arrays, rows), device=os.environ.get("CARTOGRAD_DEVICE", "cuda"))
    apart = numpy.quantile(numpy.abs(found - arrays[case]), 0.99)  # a few points of UMAP start at the same place
    assert apart < ON_A_CARD * arrays[case].std()


def test_a_digest_sees_one_bit():
    array = numpy.arange(6, dtype="float32")
    other = array.copy()
    other.view("int32")[3] ^= 1
    assert digest(array) == digest(array.copy())
    assert len({digest(array), digest(other), digest(array.reshape(2, 3)), digest(array.view("int32"))}) == 4
