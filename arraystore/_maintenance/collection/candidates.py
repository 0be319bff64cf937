"""Objects that may be garbage, as sorted columns of ids, and marks on those that something needs.

Candidates come from listings, which are in order of ids; what the trace finds is looked up in them, batch by batch.  So
memory is 13 bytes a candidate, whatever the repository holds.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from arraystore._format.ids import ID_BYTES

__all__ = ["Candidates"]

_ID: np.dtype[np.bytes_] = np.dtype(f"S{ID_BYTES}")


class Candidates:
    """Objects of one kind.

    Parameters
    ----------
    ids
        Ascending.
    sizes
        Bytes of each.
    """

    def __init__(self, ids: npt.NDArray[np.bytes_], sizes: npt.NDArray[np.int64]) -> None:
        self.ids = ids
        self.sizes = sizes
        self.needed = np.zeros(len(ids), dtype=bool)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, ids: Iterable[npt.NDArray[np.bytes_]], sizes: Iterable[npt.NDArray[np.int64]]) -> Candidates:
        """Put pages of a listing together."""
        return cls(np.concatenate([np.empty(0, _ID), *ids]), np.concatenate([np.empty(0, np.int64), *sizes]))

    def mark(self, needed: bytes) -> None:
        """Mark what is needed, given as ids one after the other."""
        if not needed or not len(self.ids):
            return
        asked = np.frombuffer(needed, dtype=_ID)
        at = np.searchsorted(self.ids, asked)
        at[at == len(self.ids)] = 0
        found = self.ids[at] == asked
        self.needed[at[found]] = True

    def garbage(self) -> tuple[bytes, int]:
        """Return the ids that nothing needs, one after the other, and how many bytes these objects have."""
        unneeded = ~self.needed
        return np.ascontiguousarray(self.ids[unneeded]).tobytes(), int(self.sizes[unneeded].sum())
