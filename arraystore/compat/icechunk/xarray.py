"""Datasets of xarray, written into sessions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from arraystore import xarray as core
from arraystore.compat.icechunk._forward import refining
from arraystore.compat.icechunk.session import Session

__all__ = ["to_icechunk"]


def to_icechunk(
    obj: Any,
    session: Session,
    *,
    group: str | None = None,
    mode: Any = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Any = None,
    encoding: Mapping[Any, Any] | None = None,
    chunkmanager_store_kwargs: Mapping[str, Any] | None = None,
    split_every: int | None = None,
) -> None:
    """Write a dataset or a data array into a session or a fork, dask arrays by forks of it."""
    with refining():
        core.to_arraystore(
            obj,
            session._core,
            group=group,
            mode=mode,
            safe_chunks=safe_chunks,
            align_chunks=align_chunks,
            append_dim=append_dim,
            region=region,
            encoding=encoding,
            chunkmanager_store_kwargs=chunkmanager_store_kwargs,
            split_every=split_every,
        )
