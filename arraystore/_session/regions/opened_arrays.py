"""Regions of arrays that zarr has opened: opening them again would add their metadata to the read set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import zarr

from arraystore._session.hierarchy import ArrayHandle
from arraystore._session.regions.access import RegionSession, region_of
from arraystore._session.regions.many_arrays import read_regions
from arraystore.errors import NodeNotFoundError


def config_of(array: zarr.Array[Any]) -> Any:
    """Return the configuration that an array was opened with."""
    inner = getattr(array, "async_array", None) or array._async_array  # public since zarr 3.1.4
    return inner.config if hasattr(inner, "config") else inner._config


def read_whole(session: RegionSession, paths: Iterable[str]) -> list[Any]:
    """Read open arrays of a session together."""
    return read_regions(session, [region_of(session, path, _handle(session, path), ...) for path in paths])


def write_like(session: RegionSession, array: zarr.Array[Any], selection: Any, values: Any) -> None:
    """Write a region of an open array of a session as an assignment to it does."""
    if config_of(array).write_empty_chunks != bool(zarr.config.get("array.write_empty_chunks")):
        array[selection] = values  # only zarr knows of it
        return
    session.check_writable()
    region = region_of(session, array.path, _handle(session, array.path), selection)
    region.write(region.convert(values))


def _handle(session: RegionSession, path: str) -> ArrayHandle:
    node = session.hierarchy.node(path)
    if node is None:
        raise NodeNotFoundError(f"array {path!r} was deleted from {session.describe()}: open another")
    return session.hierarchy.handle(node)
