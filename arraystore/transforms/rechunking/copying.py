"""Copying boxes from one array to another, in tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arraystore._format.types import Int64s
from arraystore._session.base import SessionBase
from arraystore._session.fork import ForkSession
from arraystore.errors import ArrayStoreError
from arraystore.transforms.boxes import as_slices, box_text
from arraystore.transforms.report import TransformError


@dataclass(frozen=True)
class BoxCopier:
    """Copies boxes of a task from an array of a snapshot to an array of a fork."""

    source: SessionBase | None
    """Session that reads; None for the fork itself."""
    source_path: str
    target_path: str
    dims: tuple[str, ...]

    def __call__(self, fork: ForkSession, share: Int64s) -> Mapping[str, Any]:
        """Copy boxes, shape (n, d, 2)."""
        reader = self.source or fork
        nbytes = 0
        for bounds in share:
            try:
                nbytes += self._copy(reader, fork, bounds)
            except ArrayStoreError:
                raise
            except Exception as error:
                place = f"{box_text(bounds, self.dims)} of {self.source_path!r} to {self.target_path!r}"
                raise TransformError(f"copying {place} failed: {type(error).__name__}: {error}") from error
        return {"nbytes": nbytes}

    def _copy(self, reader: SessionBase, fork: ForkSession, bounds: Int64s) -> int:
        region = (*as_slices(bounds), ...)
        values = np.asarray(reader.read(self.source_path, region))
        fork.write(self.target_path, region, values)
        return int(values.nbytes)
