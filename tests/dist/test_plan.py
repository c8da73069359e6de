"""The plan on paper of docs/scale.md: its table is what the script prints, and its formulas are what is counted."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "scale_plan.py"


def scale_plan():
    """The script as a module."""
    found = importlib.util.spec_from_file_location("scale_plan", SCRIPT)
    module = importlib.util.module_from_spec(found)
    sys.modules["scale_plan"] = module
    found.loader.exec_module(module)
    return module


def test_the_table_is_what_the_script_prints():
    printed = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True, timeout=60).stdout
    page = (ROOT / "docs" / "scale.md").read_text()
    shown = page.split("<!-- plan -->\n")[1].split("<!-- end of plan -->")[0]
    assert shown.strip() == printed.strip()


def test_its_constants_are_those_of_the_code():
    from cartograd.distributed import group, search

    plan = scale_plan()
    assert plan.HEADER == 8 * group.HEADER
    assert plan.TILE_NUMBERS == search.TILE_ELEMENTS


@pytest.mark.parametrize("processes", [2, 4])
def test_a_step_is_what_is_counted_for_umap(processes):
    """The formula that `test_groups_and_bytes` compares with the counter, for ranges of equal length."""
    plan = scale_plan()
    phases = {phase.name: phase for phase in plan.plan(512, 8, 8, 10, processes, 1, plan.Rates())}
    own = 512 // processes
    assert phases["layout, a step"].sent == (processes - 1) * (48 + own * 2 * 4)
    assert phases["layout, 10 steps"].sent == 10 * phases["layout, a step"].sent
    assert phases["search, exact, ring"].sent == (processes - 1) * (own * 8 * 4 + 2 * 48 * (processes - 1))
