"""Values of planning: metadata of sources and groups, and the assignment of parts.

Everything here is a plain value: it pickles small, and travels to executors as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Box = tuple[tuple[int, int], ...]
"""A half-open interval for each dimension."""

STRING_BYTES = 16
"""Assumed size of a string when work is divided; the true size is known only once it is read."""


@dataclass(frozen=True, slots=True)
class VariableInfo:
    """A variable of a source, or an array of the group: everything but its values."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """In native byte order; ``object`` for strings of any length."""
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As stored, without any decoding; an array's ``_FillValue`` is among them."""
    chunks: tuple[int, ...] | None = None
    """Chunks as written; of a sharded array its shards. None: not chunked."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return STRING_BYTES if self.dtype.kind == "O" else self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.itemsize

    def axis(self, dim: str | None) -> int | None:
        """Return the position of a dimension, or None if the variable does not have it."""
        return self.dims.index(dim) if dim is not None and dim in self.dims else None


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Metadata of a source at the time of planning."""

    path: str
    engine: str
    """Engine of xarray that opened it; executors use the same."""
    group: str | None
    attrs: Mapping[str, Any]
    variables: Mapping[str, VariableInfo]

    @property
    def name(self) -> str:
        """Last part of the path, which is safe to show: it contains no credentials."""
        return self.path.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The target group before the ingest; empty if it does not exist."""

    path: str
    """From the root: begins with a slash."""
    exists: bool
    arrays: Mapping[str, VariableInfo] = field(default_factory=dict[str, VariableInfo])
    zarr_format: int = 3


@dataclass(frozen=True, slots=True)
class Recode:
    """Values of one time unit and epoch turned into another: ``new = (old * numerator + offset) / denominator``."""

    numerator: int
    offset: int
    denominator: int
    microseconds: int
    """One of the new units."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Position of a source along the append dimension: its first element is written to `start`."""

    source: int
    start: int
    length: int
    recode: Recode | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a region that comes from one source: the same extent in coordinates of source and target."""

    source: int
    take: Box
    put: Box
    """Relative to the region."""
    recode: Recode | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """A box of whole chunks of one array, and the pieces that fill it."""

    array: str
    box: Box
    pieces: tuple[Piece, ...]
    nbytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of the box."""
        return tuple(stop - start for start, stop in self.box)


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """Plan for one array."""

    variable: VariableInfo
    """The array after the ingest."""
    start: int
    """Start of the new values along the append dimension; 0 for a new array."""
    axis: int | None
    """The append dimension's position; None if the array does not have it."""
    is_new: bool
    on_driver: bool
    """Whether the driver writes it, with the metadata, because it is small."""
    origins: tuple[Origin, ...]

    @property
    def name(self) -> str:
        """Name of the array within its group."""
        return self.variable.name

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunk shape: the unit that no two tasks may share."""
        return self.variable.chunks or self.variable.shape

    @property
    def box(self) -> Box:
        """The part of the array that is written."""
        return tuple((self.start if axis == self.axis else 0, size) for axis, size in enumerate(self.variable.shape))

    @property
    def nbytes(self) -> int:
        """Bytes that are written, before compression."""
        return math.prod(stop - start for start, stop in self.box) * self.variable.itemsize
