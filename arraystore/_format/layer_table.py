"""Columnar encoding of layers, of which a checkpoint may hold a million."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from arraystore._format.box import MAX_DIMENSIONS, MAX_VOLUME, Box
from arraystore._format.columns import (
    decode_column,
    decode_strings,
    encode_column,
    encode_strings,
    from_zigzag,
    to_zigzag,
)
from arraystore._format.layer import LARGEST_SHIFT, Attachment, Layer, Placement
from arraystore._format.manifest import MAX_REFERENCES
from arraystore._format.types import Int64s
from arraystore._format.wire import read_ids, read_tuple
from arraystore.errors import FormatError

_MAX_BOUNDS = 1 << 22
"""Maximum number of bounds of all layers: a million layers of four dimensions."""

_PLACE, _DELETIONS, _SHIFTED = 3, 4, 8


def encode_layers(layers: Sequence[Layer]) -> tuple[Any, ...]:
    """Encode layers as a msgpack value."""
    attached = [layer.attachment for layer in layers if layer.inline is None and layer.attachment is not None]
    branches: dict[str, int] = {}
    shifts = np.array([s for layer in layers for s in layer.shift or ()], dtype=np.int64)
    return (
        len(layers),
        b"".join(layer.id for layer in layers),
        encode_column([len(layer.box.low) for layer in layers]),
        encode_column([low for layer in layers for low in layer.box.low]),
        encode_column([side for layer in layers for side in layer.box.shape]),
        encode_column([layer.count for layer in layers]),
        encode_column([_flags(layer) for layer in layers]),
        *encode_strings(layer.inline for layer in layers if layer.inline is not None),
        encode_column([branches.setdefault(at.branch, len(branches)) for at in attached]),
        tuple(branches),
        encode_column([at.sequence for at in attached]),
        encode_column([at.index for at in attached]),
        encode_column(to_zigzag(shifts)),
    )


def _flags(layer: Layer) -> int:
    return layer.placement + _DELETIONS * layer.deletions + _SHIFTED * (layer.shift is not None)


def decode_layers(name: str, value: Any) -> list[Layer]:
    """Decode the value of `encode_layers`; raises `FormatError`."""
    count, ids, dims, lows, sides, counts, flags, lengths, blob, branch, branches, sequences, indices, shifts = (
        read_tuple(name, value, int, read_ids, *(bytes,) * 8, tuple, *(bytes,) * 3)
    )
    if len(ids) != count or not all(type(item) is str for item in branches):
        raise FormatError(name, "columns of the table of layers must have the same length")
    ndims = decode_column(f"{name}: dimensions", dims, count, MAX_DIMENSIONS)
    bounds = int(ndims.sum())
    if bounds > _MAX_BOUNDS:
        raise FormatError(name, f"the layers have {bounds} bounds; at most {_MAX_BOUNDS} are allowed")
    flag = decode_column(f"{name}: flags", flags, count, _SHIFTED + _DELETIONS + Placement.ATTACHMENT)
    place = flag & _PLACE
    if bool((place > Placement.ATTACHMENT).any()):
        raise FormatError(name, "unknown placement of a manifest")
    inlined = int((place == Placement.INLINE).sum())
    inline = iter(decode_strings(f"{name}: inlined manifests", lengths, blob, inlined))
    attached = _attachments(name, branch, branches, sequences, indices, int((place == Placement.ATTACHMENT).sum()))
    moves = int(ndims[(flag & _SHIFTED) != 0].sum())
    shift = iter(from_zigzag(decode_column(f"{name}: shifts", shifts, moves, 2 * LARGEST_SHIFT)).tolist())
    low = decode_column(f"{name}: lows", lows, bounds, MAX_VOLUME - 1)
    side = decode_column(f"{name}: sides", sides, bounds, MAX_VOLUME)
    reference_counts = decode_column(f"{name}: counts", counts, count, MAX_REFERENCES)
    boxes = _boxes(name, ndims, low, side, reference_counts)
    layers: list[Layer] = []
    for identifier, ndim, bits, references, box in zip(
        ids, ndims.tolist(), flag.tolist(), reference_counts.tolist(), boxes, strict=True
    ):
        placement = bits & _PLACE
        layers.append(
            Layer(
                identifier,
                box,
                references,
                bool(bits & _DELETIONS),
                next(inline) if placement == Placement.INLINE else None,
                next(attached) if placement == Placement.ATTACHMENT else None,
                tuple(islice(shift, ndim)) if bits & _SHIFTED else None,
            )
        )
    return layers


def _boxes(name: str, ndims: Int64s, low: Int64s, side: Int64s, counts: Int64s) -> Iterator[Box]:
    """Yield the box of each layer; raises `FormatError` unless each has as many references as it has room for."""
    volumes = _volumes(ndims, side)
    wrong = (counts < 1) | (counts > volumes)
    if bool(wrong.any()):
        at = int(wrong.argmax())
        raise FormatError(name, f"a layer has {counts[at]} references in a box of {volumes[at]} cells")
    if bool((low > MAX_VOLUME - side).any()):
        raise FormatError(name, f"the bounds of a layer must be <= {MAX_VOLUME}")
    lows, highs = iter(low.tolist()), iter((low + side).tolist())
    return (Box(tuple(islice(lows, ndim)), tuple(islice(highs, ndim))) for ndim in ndims.tolist())


def _volumes(ndims: Int64s, side: Int64s) -> Int64s:
    """Return the cells of boxes, and 0 for those with more than can be numbered."""
    volumes = np.ones(len(ndims), dtype=np.int64)
    first = np.cumsum(ndims) - ndims
    for axis in range(int(ndims.max(initial=0))):
        has = ndims > axis
        along = side[first[has] + axis]
        before = volumes[has]
        volumes[has] = np.where(before <= MAX_VOLUME // np.maximum(along, 1), before * along, 0)
    return volumes


def _attachments(
    name: str, branch: Any, branches: tuple[str, ...], sequences: Any, indices: Any, count: int
) -> Iterator[Attachment]:
    if count and not branches:
        raise FormatError(name, "attachments need a branch")
    of_branch = decode_column(f"{name}: branches", branch, count, max(len(branches) - 1, 0)).tolist()
    at = decode_column(f"{name}: records", sequences, count).tolist()
    index = decode_column(f"{name}: attachments", indices, count).tolist()
    return (Attachment(branches[b], s, i) for b, s, i in zip(of_branch, at, index, strict=True))
