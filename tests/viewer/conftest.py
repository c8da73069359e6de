import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Chromium, find_chromium


@pytest.fixture(scope="session")
def browser():
    if find_chromium() is None:
        pytest.skip("no Chromium: install one, or name its program in the variable CHROMIUM")
    with Chromium() as chromium:
        yield chromium
