"""Appends of datasets: all arrays of a group that share the dimension grow together, or none has changed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager

from arraystore._format.node import ancestors
from arraystore._session.append import lengths_along
from arraystore._session.append_undo import all_or_none
from arraystore._session.fork import ForkSession
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.keys import join
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError, SessionStateError
from arraystore.xarray.parts import Mode, Part

_SHOWN = 5


@contextmanager
def all_parts_or_none(
    session: Session | ForkSession, group: str, parts: Iterable[Part], dim: Hashable | None, mode: Mode
) -> Iterator[None]:
    """Restore what an append, or a write that makes or replaces a group, has changed if it fails; they take turns."""
    appends = dim is not None and session.records_appends
    if not isinstance(session, Session) or not (appends or mode in ("w", "w-")):
        yield
        return
    paths = _paths(group, parts)
    if mode == "w":
        paths += _paths_below(session.hierarchy, group)
    with session.append_lock, all_or_none(session.hierarchy, paths, str(dim) if appends else None):
        yield


def _paths_below(hierarchy: Hierarchy, group: str) -> list[str]:
    """Return the paths of all nodes below a group, ancestors first."""
    place = join(group, "") if group else ""
    return sorted(node.key for node in hierarchy.writable().all_nodes() if node.path.startswith(place))


def _paths(group: str, parts: Iterable[Part]) -> list[str]:
    """Return the paths of the nodes that parts may change or make, ancestors first."""
    paths: list[str] = []
    for part in parts:
        path = join(group, part.path) if part.path else group
        paths += [*reversed(list(ancestors(path))), path]
        paths += [join(path, str(name)) for name in part.dataset.variables]
    return paths


@contextmanager
def growing(session: Session | ForkSession, dim: Hashable | None) -> Iterator[None]:
    """Record growth as an append at the end of arrays, without a dependency on their present length."""
    if dim is None:
        yield
    elif isinstance(session, ForkSession):
        raise SessionStateError("forks do not append to arrays: do it in the session, before forking")
    elif not session.records_appends:
        yield
    else:
        with session.appending(str(dim)), session.hierarchy.untracked():
            yield


def growth_problem(hierarchy: Hierarchy, group: str, names: Collection[str], dim: str) -> str | None:
    """Return why these variables are not all arrays of a group that have a dimension, of one length; None if they are.

    Arrays of other lengths would give what is appended later other labels.
    """
    lengths = {path.rpartition("/")[2]: n for path, n in lengths_along(hierarchy, {group}, dim).items()}
    where = f"group {'/' + group!r}"
    if missing := lengths.keys() - names:
        return (
            f"{where} has {_listed(missing)} along {dim!r}, and the dataset does not: arrays of a group that share a "
            "dimension must grow together, or what is appended later gets wrong labels. Add them to the dataset, of "
            "missing values if there are no others; or move or delete them before"
        )
    if lengths and (new := set(names) - lengths.keys()):
        return (
            f"the dataset has {_listed(new)} along {dim!r}, and {where} does not: a new array would lack the "
            f"{max(lengths.values())} items that are stored of the others. Write it for these before, with mode='a' "
            f"and without append_dim; or leave it out: dataset.drop_vars({sorted(new)!r})"
        )
    if len(set(lengths.values())) > 1:
        return (
            f"the arrays of {where} must be of one length along {dim!r} to grow together, and are not: "
            f"{dict(sorted(lengths.items()))}. Resize the shorter ones, and write what is missing, or move them to "
            "another group"
        )
    return None


def check_parts_grow(
    hierarchy: Hierarchy, group: str, parts: Iterable[Part], dim: str, elsewhere: Collection[str], indexes: bool
) -> None:
    """Check that in each group all arrays that have the dimension grow; raises `InvalidInputError`.

    `elsewhere` are variables of the first group that the caller appends itself.  `indexes` tells whether xarray writes
    indexes, which it does not if the dataset has a region.
    """
    for part in parts:
        unwritten = () if indexes else part.dataset.indexes
        named = {str(n) for n, each in part.dataset.variables.items() if dim in each.dims and n not in unwritten}
        path = join(group, part.path) if part.path else group
        problem = growth_problem(hierarchy, path, named | (set() if part.path else set(elsewhere)), dim)
        if problem is not None:
            raise InvalidInputError(problem)


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - _SHOWN} others" if len(shown) > _SHOWN else ""
    return ", ".join(map(repr, shown[:_SHOWN])) + more
