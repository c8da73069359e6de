"""How the source speaks: first words of docstrings, names of functions, code spoken of as people, British spellings.

The word lists are heuristics: a sentence that reads well beats them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from house.source import files, tree

VERBS = set(
    """
    abort accept accumulate acquire adapt add adjust advance agree align allocate allow answer append apply
    approximate arrange ask assemble assert assign attach attract average balance begin bind blend block bound box
    break broadcast build bundle cache calibrate call cancel cap cast center change check choose clamp classify clean
    clear clip clone close cluster collapse collate collect color combine compare compile complete compress compute
    concatenate configure confirm connect consume contain continue contract control convert copy correct count cover
    create cut cycle deal decide declare decode decompose decorate decrease defer define delete deliver derive descend
    describe deserialize detach detect determine differentiate discard dispatch display distribute divide do double
    download drain draw drop dump duplicate embed emit enable encode end enforce ensure enter enumerate escape
    estimate evaluate examine exchange exclude execute exit expand explain export expose extend extract fail fall feed
    fetch fill filter find finish fire fit flag flatten flip flush fold follow forbid force forget fork form format
    forward free freeze fuse gather generate get give go group grow guard guess halve handle hash hide hold identify
    ignore import include increase index infer inform initialize insert inspect install integrate interpolate
    interpret intersect invert invoke iterate join keep kill label launch lay leave let limit link list load locate
    lock log look lower make manage map mark mask match materialize maximize measure merge minimize mirror mix move
    multiply name narrow negate normalize note notify number observe obtain offer offset open optimize order
    orthogonalize pack pad paint parse partition pass patch perform permute pick place plan plot poll pop populate
    predict prefer prepare preserve press prevent print probe process produce project promote propagate propose
    protect prove provide prune publish pull push put quantize query queue quote raise randomize rank read rebuild
    receive recognize recompute reconstruct record recover redirect reduce refer refine refuse register reject relabel
    relax release reload remember remove rename render reorder repeat replace replay report represent request require
    rescale reserve reset reshape resolve restart restore restrict resume retrieve retry return reuse reverse rewrite
    roll rotate round route run sample save say scale scan scatter schedule score search seed select send separate
    serialize serve set settle shape share shift show shrink shuffle shut sign simplify skip sleep slice smooth snap
    solve sort span split spread square stack stand standardize start state step stop store stream strip subtract
    suggest sum summarize supply support suppress swap switch synchronize synthesize take tell test tie tile time
    touch trace track train transfer transform translate transpose traverse treat trim try tune turn undo unfold unite
    unpack unregister unwrap update upload use validate verify view visit wait wake walk warm warn watch weigh whiten
    widen wrap write yield zero
    """.split()
)
PARTICIPLE = re.compile(
    r"[a-z]+(ed|wn|ght)|found|made|held|kept|left|led|put|read_of|done|cut|sent|split_of|taken|given|chosen|written"
    r"|hidden|begun|drawn"
)
PREPOSITION = re.compile(r"of|on|at|about|in|by|for|to|over|like|with|from|as|(of|about|like|over|asked|by)_[a-z_]+")
NOUNS = set("seed need feed speed embed shed weed freed_of right light weight height night down own put".split())
"""Names that only look like participles or prepositions."""
PERSONS = re.compile(
    r"\b(somebody|nobody|anybody|everybody|whoever|whom|somebody's|looks? in\b|no business of)", re.IGNORECASE
)
BRITISH = re.compile(
    r"(neighbour|colour|centre|optimis|normalis|initialis|recognis|standardis|regularis|symmetris|randomis|summaris"
    r"|minimis|maximis|discretis|orthogonalis|serialis|synchronis|parallelis|vectoris|organis|analys(e|ing)\b"
    r"|behaviour|favour|\bgrey|labell|cancell(ed|ing)|modell(ed|ing)|metre)",
    re.IGNORECASE,
)
FORMULA_FIRST = {"kernels", "ops"}
"""Rooms whose docstrings begin with a formula."""


def findings(root: Path | None = None) -> tuple[dict[str, list[str]], int, int]:
    """Return the findings by kind, the number of docstrings read and the number of functions."""
    found: dict[str, list[str]] = {"verbs": [], "names": [], "persons": [], "british": []}
    docs = functions = 0
    for path in files():
        if root is not None and root not in path.parents:
            continue
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.FunctionDef) or node.name == "_" or node.name.startswith("__"):
                continue
            functions += 1
            where = f"{path}:{node.lineno} {node.name}"
            if is_bare(node.name):
                found["names"].append(where)
            text = _docstring(path, node)
            if text:
                docs += 1
                if not begins_with_verb(text):
                    found["verbs"].append(f"{where}: {text.splitlines()[0]}")
        for kind, where in _prose(path):
            found[kind].append(where)
    return found, docs, functions


def figures() -> dict[str, float]:
    """Return the four figures."""
    found, docs, functions = findings()
    return {
        "verbs": round(1 - len(found["verbs"]) / max(docs, 1), 2),
        "names": round(len(found["names"]) / max(functions, 1), 4),
        "persons": len(found["persons"]),
        "british": len(found["british"]),
    }


def is_bare(name: str) -> bool:
    """Return whether a function's whole name is a participle or a preposition."""
    name = name.strip("_")
    return name not in NOUNS and bool(PARTICIPLE.fullmatch(name) or PREPOSITION.fullmatch(name))


def begins_with_verb(text: str) -> bool:
    """Return whether the first word of a docstring is a verb."""
    word = text.split()[0].lower().strip("`*:.,;")
    stems = {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}
    return bool(stems & VERBS)


def _docstring(path: Path, node: ast.FunctionDef) -> str:
    """Return the docstring of a function that does something; empty for a property and for a formula."""
    text = ast.get_docstring(node) or ""
    is_property = any("property" in ast.unparse(one) for one in node.decorator_list)
    is_formula = not re.match(r"[A-Z][a-z]+\b", text) and re.match(r"\W|[a-z0-9]", text)
    return "" if is_property or is_formula or FORMULA_FIRST & set(path.parts) else text


def _prose(path: Path) -> Iterator[tuple[str, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        prose = token.type in (tokenize.COMMENT, tokenize.STRING)
        if prose and (match := PERSONS.search(token.string)):
            yield "persons", f"{path}:{token.start[0]} {match[0]}"
        if prose or token.type == tokenize.NAME:
            for match in BRITISH.finditer(token.string):
                yield "british", f"{path}:{token.start[0]} {match[0]}"
