"""Candidates for deletion as sorted columns of ids, with marks on the referenced ones.

Listings return ids in order, and traced ids are looked up in them batch by batch, so memory is 13 bytes a candidate,
whatever the size of the repository.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from arraystore._format.ids import ID_BYTES
from arraystore._format.types import IdColumn, Int64s

_ID: np.dtype[np.bytes_] = np.dtype(f"S{ID_BYTES}")


class Candidates:
    """Objects of one kind, by ascending ids, with their sizes in bytes and whether each is referenced."""

    def __init__(self, ids: IdColumn, sizes: Int64s) -> None:
        self.ids = ids
        self.sizes = sizes
        self.referenced = np.zeros(len(ids), dtype=bool)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, ids: Iterable[IdColumn], sizes: Iterable[Int64s]) -> Candidates:
        """Concatenate pages of a listing."""
        return cls(np.concatenate([np.empty(0, _ID), *ids]), np.concatenate([np.empty(0, np.int64), *sizes]))

    def mark(self, referenced: bytes) -> None:
        """Mark concatenated ids as referenced."""
        if not referenced or not len(self.ids):
            return
        marked = np.frombuffer(referenced, dtype=_ID)
        at = np.searchsorted(self.ids, marked)
        at[at == len(self.ids)] = 0
        matches = self.ids[at] == marked
        self.referenced[at[matches]] = True

    def garbage(self) -> tuple[bytes, int]:
        """Return the concatenated ids of unreferenced objects, and their total size in bytes."""
        unreferenced = ~self.referenced
        return np.ascontiguousarray(self.ids[unreferenced]).tobytes(), int(self.sizes[unreferenced].sum())
