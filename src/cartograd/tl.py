"""Maps of AnnData objects, as scanpy's tools make them: `cartograd.tl.umap` writes ``adata.obsm["X_umap"]``."""

from __future__ import annotations

import logging
from typing import Any

from cartograd.errors import InputError, OptionError, UnsupportedError

log = logging.getLogger("cartograd.tl")

DEFAULT = "X_pca"
"""What is mapped where it is there."""


def umap(
    adata: Any,
    *,
    use_rep: str | None = None,
    key_added: str | None = None,
    copy: bool = False,
    random_state: int = 0,
    **parameters: Any,
) -> Any:
    """Map the cells of an AnnData object by `cartograd.UMAP`.

    Writes ``adata.obsm["X_umap"]``, the parameters to ``adata.uns["umap"]["params"]``, and the graph of neighbours to
    ``adata.obsp["connectivities"]``, or to ``adata.obsp["umap_connectivities"]`` where another tool has written the
    former; ``adata.uns["umap"]["connectivities_key"]`` says which.

    The defaults are those of `cartograd.UMAP`, of which two differ from scanpy's: `min_dist` is 0.1 (there 0.5) and
    `n_neighbors` is 30 (there 15). Neighbours are searched: a graph of ``scanpy.pp.neighbors`` is not used.

    Parameters
    ----------
    adata : AnnData
        The cells.
    use_rep : str, default=None
        What to map: an entry of ``obsm``, a layer, or "X"; None for "X_pca" where it is there, otherwise "X".
    key_added : str, default=None
        Where to write: ``obsm[key_added]``, ``uns[key_added]`` and ``obsp[key_added + "_connectivities"]``.
    copy : bool, default=False
        Whether to leave `adata` as it is and return a copy with the map.
    random_state : int, default=0
        The seed.
    **parameters : Any
        Parameters of `cartograd.UMAP`.

    Returns
    -------
    AnnData or None
        The copy, where one was asked for.
    """
    from cartograd.embedding import UMAP

    return _mapped(adata, UMAP, "umap", use_rep, key_added, copy, {"random_state": random_state, **parameters})


def tsne(
    adata: Any,
    *,
    use_rep: str | None = None,
    key_added: str | None = None,
    copy: bool = False,
    random_state: int = 0,
    **parameters: Any,
) -> Any:
    """Map the cells of an AnnData object by `cartograd.TSNE`, to ``adata.obsm["X_tsne"]``.

    The graph goes to ``adata.obsp["tsne_connectivities"]``.

    Parameters
    ----------
    adata : AnnData
        The cells.
    use_rep : str, default=None
        What to map, as for `umap`.
    key_added : str, default=None
        Where to write, as for `umap`.
    copy : bool, default=False
        Whether to leave `adata` as it is and return a copy with the map.
    random_state : int, default=0
        The seed.
    **parameters : Any
        Parameters of `cartograd.TSNE`.

    Returns
    -------
    AnnData or None
        The copy, where one was asked for.
    """
    from cartograd.embedding import TSNE

    return _mapped(adata, TSNE, "tsne", use_rep, key_added, copy, {"random_state": random_state, **parameters})


def pacmap(
    adata: Any,
    *,
    use_rep: str | None = None,
    key_added: str | None = None,
    copy: bool = False,
    random_state: int = 0,
    **parameters: Any,
) -> Any:
    """Map the cells of an AnnData object by `cartograd.PACMAP`, to ``adata.obsm["X_pacmap"]``.

    The graph goes to ``adata.obsp["pacmap_connectivities"]``.

    Parameters
    ----------
    adata : AnnData
        The cells.
    use_rep : str, default=None
        What to map, as for `umap`.
    key_added : str, default=None
        Where to write, as for `umap`.
    copy : bool, default=False
        Whether to leave `adata` as it is and return a copy with the map.
    random_state : int, default=0
        The seed.
    **parameters : Any
        Parameters of `cartograd.PACMAP`.

    Returns
    -------
    AnnData or None
        The copy, where one was asked for.
    """
    from cartograd.embedding import PACMAP

    return _mapped(adata, PACMAP, "pacmap", use_rep, key_added, copy, {"random_state": random_state, **parameters})


def _mapped(
    adata: Any, cls: Any, name: str, use_rep: str | None, key: str | None, copy: bool, parameters: dict[str, Any]
) -> Any:
    if not all(hasattr(adata, room) for room in ("obs", "obsm", "uns", "obsp", "layers")):
        raise UnsupportedError(
            f"adata must be an AnnData object, got {type(adata).__name__}; use cartograd.{cls.__name__}"
        )
    place, X = _represented(adata, use_rep)
    try:
        model = cls(**parameters)
    except TypeError as error:
        raise OptionError(f"{cls.__name__}: {error}; see help(cartograd.{cls.__name__})") from None
    Z = model.fit_transform(X)
    target = adata.copy() if copy else adata
    entry = key or name
    before = target.uns.get(entry, {})
    target.obsm[key or f"X_{name}"] = Z
    target.uns[entry] = {"params": _kept(parameters) | {"use_rep": place, "method": cls.__name__}}
    _write_graph(target, model, entry, before)
    return target if copy else None


def _represented(adata: Any, use_rep: str | None) -> tuple[str, Any]:
    """What is mapped: its name, and the matrix."""
    if use_rep is None:
        use_rep = DEFAULT if DEFAULT in adata.obsm else "X"
    if use_rep in adata.obsm:
        X = adata.obsm[use_rep]
    elif use_rep in adata.layers:
        X = adata.layers[use_rep]
    elif use_rep == "X" and adata.X is not None:
        X = adata.X
    else:
        there = [*(["X"] if adata.X is not None else []), *adata.obsm.keys(), *adata.layers.keys()]
        raise OptionError(f"use_rep={use_rep!r} is not in adata; there are {', '.join(map(repr, there)) or 'none'}")
    log.info("the map is made of %r, %d x %d", use_rep, *X.shape)
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    if getattr(X, "dtype", None) is not None and X.dtype.kind not in "biuf":
        raise InputError(f"{use_rep!r} is of {X.dtype}; a map is made of real numbers")
    return use_rep, X


def _kept(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that an .h5ad file can hold."""
    return {name: value for name, value in parameters.items() if isinstance(value, (bool, int, float, str))}


def _write_graph(adata: Any, model: Any, entry: str, before: Any) -> None:
    """Put the affinity into ``obsp``, where the estimator keeps one of all rows."""
    graph: Any = getattr(model, "affinity_in_", None)
    matrix = graph.to_scipy() if hasattr(graph, "to_scipy") else None
    if matrix is None or matrix.shape != (adata.n_obs, adata.n_obs):
        if matrix is not None:
            log.info("the graph is not written: it is one of %d different rows, of %d", matrix.shape[0], adata.n_obs)
        return
    name = "connectivities"
    if entry != "umap" or (name in adata.obsp and before.get("connectivities_key") != name):
        name = f"{entry}_connectivities"
    adata.obsp[name] = matrix
    adata.uns[entry]["connectivities_key"] = name
