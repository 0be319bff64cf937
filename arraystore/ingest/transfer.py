"""Copying regions from sources into the group, in tasks, or on the driver for small arrays."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import xarray as xr
import zarr.errors

from arraystore.errors import ArrayStoreError
from arraystore.ingest.model import Box, Recode, Region, SourceInfo, VariableInfo
from arraystore.ingest.plan import IngestPlan
from arraystore.ingest.source import open_source, read_box, to_plain
from arraystore.ingest.target import array_path
from arraystore.ingest.times import recode_values
from arraystore.spark.regions.boxes import region_text

MOST_OPEN_SOURCES = 32
"""Limit of open sources: an ingest may have more sources than a process can have open files."""


class RegionTransferError(ArrayStoreError):
    """A region could not be read or written; names source, variable and region."""


class SupportsWrite(Protocol):
    """A session, or a fork of one."""

    def write(self, path: str, selection: Any, data: Any) -> None:
        """Write a region of an array."""
        ...


class Sources:
    """Sources that are opened at first use; a bounded number of those used last stay open."""

    def __init__(self, sources: Sequence[SourceInfo]) -> None:
        self._sources = sources
        self._open: OrderedDict[int, xr.Dataset] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def path(self, source: int) -> str:
        """Return the path of a source."""
        return self._sources[source].path

    def read(self, source: int, variable: VariableInfo, box: Box, recode: Recode | None) -> np.ndarray[Any, Any]:
        """Read a box in the type and the time units of the target array."""
        values = to_plain(read_box(self._dataset(source), variable.name, box), variable.dtype)
        expected = tuple(stop - start for start, stop in box)
        if values.shape != expected:
            raise ArrayStoreError(
                f"the source has changed since the ingest was planned: got {values.shape}, not {expected}; start again"
            )
        if recode is None:
            return values
        what = f"variable {variable.name!r} of {self.path(source)!r}"
        return recode_values(what, values, recode, variable.attrs.get("_FillValue"))

    def _dataset(self, source: int) -> xr.Dataset:
        if source not in self._open:
            how = self._sources[source]
            self._open[source] = open_source(how.path, how.engine, how.group)
            if len(self._open) > MOST_OPEN_SOURCES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(source)
        return self._open[source]


@dataclass(frozen=True, slots=True)
class RegionTransfer:
    """Copies regions from sources into a group; pickles small."""

    sources: tuple[SourceInfo, ...]
    """How to open them; without their variables and attributes."""
    group: str
    variables: dict[str, VariableInfo]

    @classmethod
    def of(cls, plan: IngestPlan) -> RegionTransfer:
        """Return the part of a plan that its tasks need."""
        sources = tuple(replace(source, attrs={}, variables={}) for source in plan.sources)
        return cls(sources, plan.group.path, {array.name: array.variable for array in plan.arrays})

    def __call__(self, session: SupportsWrite, regions: Sequence[Region]) -> dict[str, int]:
        """Copy regions through a session or a fork, and return counts of regions and bytes."""
        with Sources(self.sources) as sources, warnings.catch_warnings():
            warnings.simplefilter("ignore", zarr.errors.UnstableSpecificationWarning)
            for region in regions:
                self._copy(sources, session, region)
        return {"regions": len(regions), "nbytes": sum(region.nbytes for region in regions)}

    def _copy(self, sources: Sources, session: SupportsWrite, region: Region) -> None:
        variable = self.variables[region.array]
        paths = ", ".join(dict.fromkeys(sources.path(piece.source) for piece in region.pieces))
        try:
            values = _assemble(sources, variable, region)
            box = tuple(slice(start, stop) for start, stop in region.box)
            session.write(array_path(self.group, region.array), box, values)
        except Exception as error:  # whatever it is, it needs the place to be of use
            cause = str(error) if isinstance(error, ArrayStoreError) else f"{type(error).__name__}: {error}"
            raise RegionTransferError(
                f"copying failed at source {paths!r}, variable {region.array!r}, region "
                f"{region_text(region.box, variable.dims)}: {cause}"
            ) from error


def _assemble(sources: Sources, variable: VariableInfo, region: Region) -> np.ndarray[Any, Any]:
    parts: Iterator[tuple[Box, np.ndarray[Any, Any]]] = (
        (piece.put, sources.read(piece.source, variable, piece.take, piece.recode)) for piece in region.pieces
    )
    if len(region.pieces) == 1:
        return next(parts)[1]
    values = np.empty(region.shape, variable.dtype)
    for put, part in parts:
        values[tuple(slice(start, stop) for start, stop in put)] = part
    return values
