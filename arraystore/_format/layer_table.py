"""Columnar encoding of layers, of which a checkpoint may hold a million."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from arraystore._format.box import MAX_DIMENSIONS, MAX_VOLUME, Box
from arraystore._format.columns import decode_column, encode_column
from arraystore._format.envelope import read_tuple
from arraystore._format.ids import ID_BYTES
from arraystore._format.layer import LARGEST_SHIFT, Attachment, Layer, Placement
from arraystore._format.manifest import MAX_REFERENCES
from arraystore._format.types import Int64s
from arraystore.errors import FormatError

__all__ = ["decode_layers", "encode_layers"]

_MAX_BOUNDS = 1 << 22
"""Maximum number of bounds of all layers: a million layers of four dimensions."""

_PLACE, _DELETIONS, _SHIFTED = 3, 4, 8


def _column(values: Sequence[int]) -> bytes:
    return encode_column(np.array(values, dtype=np.int64))


def encode_layers(layers: Sequence[Layer]) -> tuple[Any, ...]:
    """Encode layers as a msgpack value."""
    inline = [layer.inline for layer in layers if layer.inline is not None]
    attached = [layer.attachment for layer in layers if layer.inline is None and layer.attachment is not None]
    branches: dict[str, int] = {}
    shifts = np.array([s for layer in layers for s in layer.shift or ()], dtype=np.int64)
    return (
        len(layers),
        b"".join(layer.id for layer in layers),
        _column([len(layer.box.low) for layer in layers]),
        _column([low for layer in layers for low in layer.box.low]),
        _column([side for layer in layers for side in layer.box.shape]),
        _column([layer.count for layer in layers]),
        _column([_flags(layer) for layer in layers]),
        _column([len(data) for data in inline]),
        b"".join(inline),
        _column([branches.setdefault(at.branch, len(branches)) for at in attached]),
        tuple(branches),
        _column([at.sequence for at in attached]),
        _column([at.index for at in attached]),
        encode_column((shifts << 1) ^ (shifts >> 63)),
    )


def _flags(layer: Layer) -> int:
    place = Placement.OBJECT
    if layer.inline is not None:
        place = Placement.INLINE
    elif layer.attachment is not None:
        place = Placement.ATTACHMENT
    return place + _DELETIONS * layer.deletions + _SHIFTED * (layer.shift is not None)


def decode_layers(name: str, value: Any) -> list[Layer]:
    """Decode the value of `encode_layers`; raises `FormatError`."""
    count, ids, dims, lows, sides, counts, flags, lengths, blob, branch, branches, sequences, indices, shifts = (
        read_tuple(name, value, int, *(bytes,) * 9, tuple, *(bytes,) * 3)
    )
    if count < 0 or len(ids) != count * ID_BYTES or not all(type(item) is str for item in branches):
        raise FormatError(name, "columns of the table of layers must have the same length")
    ndims = decode_column(f"{name}: dimensions", dims, count, MAX_DIMENSIONS)
    bounds = int(ndims.sum())
    if bounds > _MAX_BOUNDS:
        raise FormatError(name, f"the layers have {bounds} bounds; at most {_MAX_BOUNDS} are allowed")
    flag = decode_column(f"{name}: flags", flags, count, _SHIFTED + _DELETIONS + Placement.ATTACHMENT)
    place = flag & _PLACE
    if bool((place > Placement.ATTACHMENT).any()):
        raise FormatError(name, "unknown placement of a manifest")
    inline = _inline(name, lengths, blob, int((place == Placement.INLINE).sum()))
    attached = _attachments(name, branch, branches, sequences, indices, int((place == Placement.ATTACHMENT).sum()))
    moved = (flag & _SHIFTED) != 0
    shift = _shifts(name, shifts, int(ndims[moved].sum()))
    low = decode_column(f"{name}: lows", lows, bounds, MAX_VOLUME - 1).tolist()
    side = decode_column(f"{name}: sides", sides, bounds, MAX_VOLUME).tolist()
    reference_counts = decode_column(f"{name}: counts", counts, count, MAX_REFERENCES).tolist()
    layers: list[Layer] = []
    at = shifted = 0
    for i, (ndim, bits, references) in enumerate(zip(ndims.tolist(), flag.tolist(), reference_counts, strict=True)):
        box = _box(name, low[at : at + ndim], side[at : at + ndim], references)
        at += ndim
        vector: tuple[int, ...] | None = None
        if bits & _SHIFTED:
            vector = tuple(shift[shifted : shifted + ndim])
            shifted += ndim
        placement = bits & _PLACE
        layers.append(
            Layer(
                ids[i * ID_BYTES : (i + 1) * ID_BYTES],
                box,
                references,
                bool(bits & _DELETIONS),
                next(inline) if placement == Placement.INLINE else None,
                next(attached) if placement == Placement.ATTACHMENT else None,
                vector,
            )
        )
    return layers


def _box(name: str, low: list[int], side: list[int], count: int) -> Box:
    high = tuple([start + length for start, length in zip(low, side, strict=True)])
    box = Box(tuple(low), high)
    if not 0 < count <= box.volume <= MAX_VOLUME or any(h > MAX_VOLUME for h in high):
        raise FormatError(name, f"a layer has {count} references in a box of {box.volume} cells")
    return box


def _inline(name: str, lengths: Any, blob: bytes, count: int) -> Iterator[bytes]:
    sizes = decode_column(f"{name}: inlined manifests", lengths, count, len(blob))
    ends = np.cumsum(sizes)
    if (int(ends[-1]) if count else 0) != len(blob):
        raise FormatError(name, "lengths of inlined manifests must add up to their size")
    return (blob[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True))


def _attachments(
    name: str, branch: Any, branches: tuple[str, ...], sequences: Any, indices: Any, count: int
) -> Iterator[Attachment]:
    if count and not branches:
        raise FormatError(name, "attachments need a branch")
    of_branch = decode_column(f"{name}: branches", branch, count, max(len(branches) - 1, 0)).tolist()
    at = decode_column(f"{name}: records", sequences, count).tolist()
    index = decode_column(f"{name}: attachments", indices, count).tolist()
    return (Attachment(branches[b], s, i) for b, s, i in zip(of_branch, at, index, strict=True))


def _shifts(name: str, column: Any, count: int) -> list[int]:
    zigzag: Int64s = decode_column(f"{name}: shifts", column, count, 2 * LARGEST_SHIFT)
    shifts: list[int] = ((zigzag >> 1) ^ -(zigzag & 1)).tolist()
    return shifts
