"""Prints the figures of the house, and fails where one is worse than the best so far or, at the end, above its limit.

python scripts/check_house.py                 the table
python scripts/check_house.py --list private  what is counted: private, cycle, attributes, overrides, groups, help,
                                              tests, folders, walk, verbs, names, persons, british
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from house import coupling, estimators, language, source, walk


@dataclass(frozen=True)
class Figure:
    """One row of the table.

    Parameters
    ----------
    name : str
        What is counted.
    best : float
        The best value so far, which no commit may worsen.
    limit : float
        What it must be at the end.
    value : function
        Counts it.
    enforced : bool, default=True
        Whether it fails the check; others are printed.
    more : bool, default=False
        Whether larger is better.
    """

    name: str
    best: float
    limit: float
    value: Callable[[], float]
    enforced: bool = True
    more: bool = False

    def is_worse(self, value: float) -> bool:
        """Return whether a value is worse than the best so far."""
        return value < self.best if self.more else value > self.best


def _enforced_uses() -> list[str]:
    return [text for path, text in coupling.private_uses() if source.room(path) not in source.OTHER_ISSUE]


@lru_cache
def _rings() -> tuple[set[Path], ...]:
    return tuple(coupling.rings(coupling.import_edges()))


def _ring(inside: bool) -> set[Path]:
    """Return the largest ring of the engine and the ops, or the largest without them."""
    chosen = [ring for ring in _rings() if any(source.room(one) in source.OTHER_ISSUE for one in ring) is inside]
    return chosen[0] if chosen else set()


_language = lru_cache(language.figures)
_walk = lru_cache(walk.walk_of_umap)


def _share_tested() -> float:
    missing, needed = source.without_own_test()
    return round(1 - len(missing) / needed, 3)


FIGURES = (
    Figure("files in the largest folder", 82, 25, lambda: max(source.folder_sizes().values()), enforced=False),
    Figure("uses of another file's private name", 119, 0, lambda: len(_enforced_uses())),
    Figure("the same, engine and ops", 13, 0, lambda: len(coupling.private_uses()) - len(_enforced_uses()), False),
    Figure("attributes that a fit keeps on the estimator", 18, 2, lambda: len(estimators.attributes_of_a_fit())),
    Figure("own classes in the MRO of a neighbor embedding", 9, 6, lambda: estimators.longest_mro()[1]),
    Figure("overridden concrete methods of estimators", 162, 0, lambda: len(estimators.overrides())),
    Figure("options in a group", 51, 12, lambda: max(estimators.option_groups().values())),
    Figure("parameters of UMAP that help does not explain", 37, 0, lambda: len(_unexplained())),
    Figure("files in a ring of imports", 10, 0, lambda: len(_ring(False))),
    Figure("the same, engine and ops", 27, 0, lambda: len(_ring(True)), enforced=False),
    Figure("files that a row passes in a fit", 79, 50, lambda: len(_walk().files), enforced=False),
    Figure("pairs of files that call each other", 11, 0, lambda: len(_walk().both_ways()), enforced=False),
    Figure("lines of the longest function", 118, 100, lambda: max(source.function_lengths().values()), enforced=False),
    Figure("lines of the longest file", 396, 400, lambda: max(map(source.lines, source.files()))),
    Figure("lines of all source", 60_000, 54_000, lambda: sum(map(source.lines, source.files())), enforced=False),
    Figure("source files with a test file of their own place", 0.4, 0.6, _share_tested, more=True),
    Figure("docstrings that begin with a verb", 0.38, 0.9, lambda: _language()["verbs"], more=True),
    Figure("functions named by a participle or preposition", 0.1118, 0.005, lambda: _language()["names"]),
    Figure("code spoken of as people", 44, 0, lambda: _language()["persons"]),
    Figure("British spellings", 947, 0, lambda: _language()["british"]),
)


def _unexplained() -> list[str]:
    import cartograd

    return estimators.unexplained(cartograd.UMAP)


LISTS: dict[str, Callable[[], list[str]]] = {
    "private": lambda: [text for _, text in coupling.private_uses()],
    "cycle": lambda: [" ".join(sorted(str(one.relative_to(source.SOURCE)) for one in ring)) for ring in _rings()],
    "attributes": estimators.attributes_of_a_fit,
    "overrides": estimators.overrides,
    "groups": lambda: [f"{count} {name}" for name, count in estimators.option_groups().items()],
    "help": _unexplained,
    "tests": lambda: source.without_own_test()[0],
    "folders": lambda: [f"{count} {name}" for name, count in source.folder_sizes().most_common()],
    "walk": lambda: [f"{one} <-> {other}" for one, other in _walk().both_ways()] + sorted(_walk().files),
    **{kind: lambda kind=kind: language.findings()[0][kind] for kind in ("verbs", "names", "persons", "british")},
}


def main() -> int:
    """Print the table or a list; return the number of figures that are worse than the best so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=sorted(LISTS), help="print what is counted")
    chosen = parser.parse_args().list
    if chosen:
        print("\n".join(LISTS[chosen]()))
        return 0
    wrong = 0
    print(f"{'':52} {'now':>8} {'best':>8} {'limit':>8}")
    for figure in FIGURES:
        value = figure.value()
        worse = figure.enforced and figure.is_worse(value)
        wrong += worse
        note = "  WORSE" if worse else "" if figure.enforced else "  (printed only)"
        print(f"{figure.name:52} {value:8g} {figure.best:8g} {figure.limit:8g}{note}")
    if wrong:
        print("figures are worse than before: see --list for what is counted; the best so far stand in this script")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main()))
