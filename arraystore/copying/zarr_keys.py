"""Keys of a plain Zarr hierarchy: of metadata documents, and of chunks and other values."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator

from arraystore._format.zarr_metadata import DOCUMENT_NAMES, array_info, node_type
from arraystore._runtime.concurrency import MiB, for_each
from arraystore._session.keys import join, split_document
from arraystore.copying.errors import CopyIncompleteError
from arraystore.copying.zarr_export import MARKER
from arraystore.copying.zarr_locations import ZarrLocation
from arraystore.errors import InvalidInputError

__all__ = ["check_hierarchy", "read_documents", "value_keys"]

_MAKERS = frozenset({"zarr.json", ".zgroup", ".zarray"})
"""Names of the documents that make a node."""

_AT_A_TIME = 32


async def check_hierarchy(source: ZarrLocation) -> None:
    """Check that there is a node; raise `InvalidInputError`."""
    async for key in _document_keys(source):
        if _is_maker(key) and await source.get(key) is not None:
            return
    raise _no_hierarchy(source)


async def read_documents(source: ZarrLocation) -> dict[str, bytes]:
    """Read all metadata documents; raise `InvalidInputError` if there is no node."""
    documents: dict[str, bytes] = {}

    async def read(key: str) -> None:
        data = await source.get(key)
        if data is not None:
            documents[key] = bytes(data)

    await for_each(_document_keys(source), read, _AT_A_TIME)
    if not any(map(_is_maker, documents)):
        raise _no_hierarchy(source)
    return documents


async def value_keys(source: ZarrLocation, documents: dict[str, bytes]) -> AsyncIterator[tuple[str, int]]:
    """List keys that are not documents, with sizes; where keys cannot be listed, every chunk that may exist."""
    if source.listable:
        async for key, size in source.entries():
            if key not in documents:
                yield key, size
        return
    for key, document in documents.items():
        path, _, name = key.rpartition("/")
        if node_type(name, document) == "array":
            for relative in _all_chunks(name, document):
                yield join(path, relative), MiB


def _is_maker(key: str) -> bool:
    return key.rpartition("/")[2] in _MAKERS


def _no_hierarchy(source: ZarrLocation) -> InvalidInputError:
    return InvalidInputError(f"there is no Zarr hierarchy at {source.name}")


async def _document_keys(source: ZarrLocation) -> AsyncIterator[str]:
    if source.listable:
        async for key, _ in source.entries():
            if key == MARKER:
                raise CopyIncompleteError(f"{source.name} is an interrupted export: export it again")
            if split_document(key) is not None or key in DOCUMENT_NAMES:
                yield key
        return
    for name in DOCUMENT_NAMES:
        yield name
    for name in ("zarr.json", ".zmetadata"):
        data = await source.get(name)
        for key in [] if data is None else _consolidated(bytes(data)):
            yield key


def _consolidated(document: bytes) -> Iterator[str]:
    """Yield the keys of the documents that a consolidated one holds."""
    try:
        value = json.loads(document)
        held = value["metadata"] if "metadata" in value else value["consolidated_metadata"]["metadata"]
    except (ValueError, KeyError, TypeError):
        return
    for name in held if isinstance(held, dict) else ():
        yield name if split_document(name) is not None or name in DOCUMENT_NAMES else join(name, "zarr.json")


def _all_chunks(name: str, document: bytes) -> Iterator[str]:
    info = array_info({name: document})
    for coords in itertools.product(*map(range, info.grid)):
        yield info.key(coords)
