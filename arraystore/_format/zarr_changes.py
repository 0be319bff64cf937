"""What a change of an array's metadata documents means for its chunks.

Attributes may change while others write chunks.  What decides how a chunk's bytes become values may not: data type,
shape where it shrinks, chunk grid, chunk keys, codecs, fill value, dimension names, and the attributes by which
climate data says how stored numbers become physical ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from arraystore._format.node import Documents
from arraystore._format.zarr_metadata import array_info
from arraystore.errors import InvalidInputError

__all__ = [
    "MEANING_ATTRIBUTES",
    "Dimension",
    "alike",
    "dimension_of",
    "reads_alike",
    "same_shape",
    "with_length",
    "without_consolidated",
]

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
"""Attributes that decide what stored numbers mean, after the CF conventions and xarray's encoding of dimensions."""

_GRIDS = ("zarr.json", ".zarray")

_CONSOLIDATED = b"consolidated_metadata"
_REMEMBERED_BYTES = 16 * 1024
_KEPT = 512
"""Documents whose shapes are remembered: each append is looked at when it is checked, gathered and applied."""


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
    """Return what a document says about how chunks are read, without the shape."""
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
    # by their text, since a fill value of NaN is equal to nothing, and 1 is not the same fill value as true
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def reads_alike(before: Documents, after: Documents) -> bool:
    """Tell whether every chunk that there was is read as before: the array only grew, or changed plain attributes."""
    names = ("zarr.json", ".zarray", ".zattrs")
    changed = [name for name in names if before.get(name) != after.get(name)]
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


def without_consolidated(name: str, document: bytes, before: bytes | None) -> bytes | None:
    """Return a document without consolidated metadata, which the next change of a node below would leave stale.

    Parameters
    ----------
    name
        Of the document.
    document
        As written.
    before
        The document that it takes the place of; returned where both say the same, so that nothing has changed.

    Returns
    -------
    bytes or None
        None where nothing is left.
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
    """Tell whether an array has the shape that it had."""
    return array_info(before).shape == array_info(after).shape


def alike(first: Documents, second: Documents) -> bool:
    """Tell whether documents say the same, however they are written."""
    if first == second:
        return True
    return first.keys() == second.keys() and all(_equal(_parsed(first, n), _parsed(second, n)) for n in first)


@dataclass(frozen=True)
class Dimension:
    """One dimension of an array.

    Parameters
    ----------
    length
        In items.
    chunk
        Length of a chunk along it; None where chunks differ in length or documents disagree.
    """

    length: int
    chunk: int | None


def dimension_of(documents: Documents, axis: int) -> Dimension:
    """Return length and chunk length of a dimension; raises `InvalidInputError` where there is none."""
    v3, v2 = documents.get("zarr.json"), documents.get(".zarray")
    return (_remembered_dimension if _is_small(v3, v2) else _dimension_of)(v3, v2, axis)


def _dimension_of(zarr_json: bytes | None, zarray: bytes | None, axis: int) -> Dimension:
    documents = _both(zarr_json, zarray)
    shape, found = array_info(documents).shape, _grids(documents, axis)
    sides = {_chunk(name, value, axis) for name, value in found.items()}
    lengths = {int(value["shape"][axis]) for value in found.values()}
    chunk = sides.pop() if len(sides) == 1 and len(lengths) == 1 else None
    return Dimension(shape[axis], chunk)


def _grids(documents: Documents, axis: int) -> dict[str, dict[str, Any]]:
    """Return the documents that describe the array; raises `InvalidInputError` where one has no such dimension."""
    found: dict[str, dict[str, Any]] = {}
    for name in _GRIDS:
        try:
            shape = array_info({name: documents.get(name, b"")}).shape
        except InvalidInputError:
            continue
        if not 0 <= axis < len(shape):
            raise InvalidInputError(f"an array of {len(shape)} dimensions has no dimension {axis}")
        value = _parsed(documents, name)
        if value is not None:
            found[name] = value
    return found


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
    """Return documents in which an array has another length along a dimension.

    A document is parsed, its shape changed, and written again with members in the order in which they were.
    """
    v3, v2 = documents.get("zarr.json"), documents.get(".zarray")
    return documents | (_remembered_length if _is_small(v3, v2) else _with_length)(v3, v2, axis, length)


def _with_length(zarr_json: bytes | None, zarray: bytes | None, axis: int, length: int) -> Documents:
    changed: Documents = {}
    for name, value in _grids(_both(zarr_json, zarray), axis).items():
        value["shape"][axis] = length
        changed[name] = json.dumps(value, indent=2).encode()
    return changed


_remembered_dimension = lru_cache(maxsize=_KEPT)(_dimension_of)
_remembered_length = lru_cache(maxsize=_KEPT)(_with_length)


def _is_small(zarr_json: bytes | None, zarray: bytes | None) -> bool:
    """Tell whether documents are small enough for hundreds of them to be remembered."""
    return len(zarr_json or b"") + len(zarray or b"") <= _REMEMBERED_BYTES


def _both(zarr_json: bytes | None, zarray: bytes | None) -> Documents:
    both = {"zarr.json": zarr_json, ".zarray": zarray}
    return {name: document for name, document in both.items() if document is not None}
