"""Effects of changes of an array's metadata documents on its chunks.

Attributes may change while others write chunks.  Anything that determines how a chunk is decoded may not: data type,
shape if it shrinks, chunk grid, chunk keys, codecs, fill value, dimension names, and CF attributes that map stored to
physical values.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from arraystore._format.node import Documents
from arraystore._format.zarr_metadata import ArrayInfo, array_info
from arraystore._runtime.values import dataclass
from arraystore.errors import InvalidInputError

MEANING_ATTRIBUTES = (
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "units",
    "calendar",
    "_ARRAY_DIMENSIONS",
)
"""Attributes that determine the meaning of stored values, by the CF conventions and xarray's encoding."""

_GRIDS = ("zarr.json", ".zarray")
_DECODING = (*_GRIDS, ".zattrs")
"""Documents that determine how chunks are decoded."""

DECODING_BYTES = 16
"""Length of a digest of a decoding."""

_CONSOLIDATED = b"consolidated_metadata"
_CACHED_BYTES = 16 * 1024
_CACHED = 512
"""Number of cached documents; an append needs them when it is checked, batched and applied."""


def _parsed(documents: Documents, name: str) -> dict[str, Any] | None:
    document = documents.get(name)
    if document is None:
        return None
    try:
        value = json.loads(document)
    except (ValueError, RecursionError):
        return {"unreadable": document.hex()}
    return value if isinstance(value, dict) else {"unreadable": document.hex()}


def _meaning(attributes: Any) -> dict[str, Any]:
    return {k: attributes[k] for k in MEANING_ATTRIBUTES if k in attributes} if isinstance(attributes, dict) else {}


def _structure(documents: Documents, name: str) -> dict[str, Any] | None:
    """Return the parts of a document that determine the decoding of chunks, except the shape."""
    value = _parsed(documents, name)
    if value is None:
        return None
    if name == ".zattrs":
        return _meaning(value)
    attributes = value.pop("attributes", {})
    value.pop("shape", None)
    value.pop(_CONSOLIDATED.decode(), None)
    return {**value, "attributes": _meaning(attributes)}


def _equal(first: Any, second: Any) -> bool:
    # as JSON, since NaN is not equal to itself, and 1 is equal to True
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def reads_alike(before: Documents, after: Documents) -> bool:
    """Return whether existing chunks are decoded as before: the array only grew, or changed other attributes."""
    changed = [name for name in _DECODING if before.get(name) != after.get(name)]
    for name in changed:
        old, new = _structure(before, name), _structure(after, name)
        if name == ".zattrs":
            old, new = old or {}, new or {}
        if not _equal(old, new):
            return False
    try:
        old_shape, new_shape = array_info(before).shape, array_info(after).shape
    except InvalidInputError:
        return not changed
    return len(old_shape) == len(new_shape) and all(a <= b for a, b in zip(old_shape, new_shape, strict=True))


def decoding_digest(documents: Documents) -> bytes:
    """Return a digest of all that determines how chunks are decoded, which is everything but the shape of the array."""
    texts = tuple([documents.get(name) for name in _DECODING])
    return (_cached_digest if _is_small(*texts) else _decoding_digest)(*texts)


def _decoding_digest(*texts: bytes | None) -> bytes:
    documents = {name: text for name, text in zip(_DECODING, texts, strict=True) if text is not None}
    structures = {name: structure for name in documents if (structure := _structure(documents, name))}
    return blake2b(json.dumps(structures, sort_keys=True).encode(), digest_size=DECODING_BYTES).digest()


def without_consolidated(name: str, document: bytes, before: bytes | None) -> bytes | None:
    """Return a document without consolidated metadata, which would become stale; None if nothing is left.

    Returns `before`, the document that it replaces, if both are then equal, so that nothing changes.
    """
    if name == ".zmetadata":
        return None
    if name != "zarr.json" or (_CONSOLIDATED not in document and b"\\u" not in document):
        return document
    value = _parsed({name: document}, name)
    if value is None or value.get("node_type") != "group" or _CONSOLIDATED.decode() not in value:
        return document
    del value[_CONSOLIDATED.decode()]
    if before is not None and _equal(value, _parsed({name: before}, name)):
        return before
    return json.dumps(value, indent=2).encode()


def same_shape(before: Documents, after: Documents) -> bool:
    """Return whether an array keeps its shape."""
    return array_info(before).shape == array_info(after).shape


def keeps_chunks(path: str, before: Documents, name: str, document: bytes) -> bool:
    """Tell whether an array has the same chunks, by their keys, after a document of it was replaced."""
    new = array_info({name: document})
    others = {n: before[n] for n in _GRIDS if n in before and n != name}
    if others and not _same_keys(array_info(others), new):
        one, other = (f"{path}/{n}" if path else n for n in (name, min(others)))
        raise InvalidInputError(
            f"{one!r} and {other!r} differ in dimensions or chunk keys: the two formats of an array share its chunks; "
            "delete one of them first, or write the other array to another path"
        )
    return _same_keys(array_info(before), new)


def _same_keys(first: ArrayInfo, second: ArrayInfo) -> bool:
    return (len(first.grid), first.encodings, first.foreign) == (len(second.grid), second.encodings, second.foreign)


def alike(first: Documents, second: Documents) -> bool:
    """Return whether documents are equal as JSON."""
    if first == second:
        return True
    return first.keys() == second.keys() and all(_equal(_parsed(first, n), _parsed(second, n)) for n in first)


@dataclass(frozen=True)
class Dimension:
    """Dimension of an array."""

    length: int
    """Length in items."""
    chunk: int | None
    """Length of a chunk; None if chunks differ in length, or documents disagree."""


def dimension_of(documents: Documents, axis: int) -> Dimension:
    """Return length and chunk length of a dimension; raises `InvalidInputError` if it does not exist."""
    v3, v2 = documents.get("zarr.json"), documents.get(".zarray")
    return (_cached_dimension if _is_small(v3, v2) else _dimension_of)(v3, v2, axis)


def _dimension_of(zarr_json: bytes | None, zarray: bytes | None, axis: int) -> Dimension:
    documents = _both(zarr_json, zarray)
    shape, grids = array_info(documents).shape, _grids(documents, axis)
    sides = {_chunk(name, value, axis) for name, value in grids.items()}
    lengths = {int(value["shape"][axis]) for value in grids.values()}
    chunk = sides.pop() if len(sides) == 1 and len(lengths) == 1 else None
    return Dimension(shape[axis], chunk)


def _grids(documents: Documents, axis: int) -> dict[str, dict[str, Any]]:
    """Return the parsed documents with a grid; raises `InvalidInputError` if one lacks the dimension."""
    grids: dict[str, dict[str, Any]] = {}
    for name in _GRIDS:
        try:
            shape = array_info({name: documents.get(name, b"")}).shape
        except InvalidInputError:
            continue
        if not 0 <= axis < len(shape):
            raise InvalidInputError(f"an array of {len(shape)} dimensions has no dimension {axis}")
        value = _parsed(documents, name)
        if value is not None:
            grids[name] = value
    return grids


def _chunk(name: str, document: dict[str, Any], axis: int) -> int | None:
    if name == ".zarray":
        side = document["chunks"][axis]
    else:
        grid = document["chunk_grid"]
        if grid["name"] != "regular":
            return None
        side = grid["configuration"]["chunk_shape"][axis]
    return side if type(side) is int and side > 0 else None


def with_length(documents: Documents, axis: int, length: int) -> Documents:
    """Return the documents with another length of the array along a dimension, members in the same order."""
    v3, v2 = documents.get("zarr.json"), documents.get(".zarray")
    return documents | (_cached_length if _is_small(v3, v2) else _with_length)(v3, v2, axis, length)


def _with_length(zarr_json: bytes | None, zarray: bytes | None, axis: int, length: int) -> Documents:
    changed: Documents = {}
    for name, value in _grids(_both(zarr_json, zarray), axis).items():
        value["shape"][axis] = length
        changed[name] = json.dumps(value, indent=2).encode()
    return changed


_cached_dimension = lru_cache(maxsize=_CACHED)(_dimension_of)
_cached_length = lru_cache(maxsize=_CACHED)(_with_length)
_cached_digest = lru_cache(maxsize=_CACHED)(_decoding_digest)


def _is_small(*texts: bytes | None) -> bool:
    """Return whether documents are small enough for the cache."""
    return sum([len(text or b"") for text in texts]) <= _CACHED_BYTES


def _both(zarr_json: bytes | None, zarray: bytes | None) -> Documents:
    both = {"zarr.json": zarr_json, ".zarray": zarray}
    return {name: document for name, document in both.items() if document is not None}
