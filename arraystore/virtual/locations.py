"""Locations of sources: absolute URLs, and sizes of whole objects."""

from __future__ import annotations

import os
from collections.abc import Sequence

from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._runtime import run
from arraystore._runtime.concurrency import bounded
from arraystore._session.session import Session
from arraystore.virtual.errors import VirtualizeError

_AT_ONCE = 32


def absolute_url(location: object) -> str:
    """Return a location as a URL; raises `VirtualizeError` for a relative path."""
    text = str(location)
    if "://" in text:
        return text
    if os.path.isabs(text):
        return f"file://{text}"
    raise VirtualizeError(f"the location {text[:200]!r} is relative: references must have URLs or absolute paths")


def whole_lengths(session: Session, urls: Sequence[str]) -> list[int]:
    """Return the sizes of sources: one request each, many at a time."""
    containers: VirtualContainers = session.context.containers

    async def size(url: str) -> int:
        storage, key = containers.find(url)
        return (await storage.get_source_ranges(key, []))[1].size

    async def sizes() -> list[int]:
        return await bounded(size, urls, _AT_ONCE)

    return run(sizes())
