"""Objects of one kind as sorted columns of ids and sizes: some twenty bytes each, whatever the size of a repository."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from arraystore._format.ids import find_ids, ids_from_texts, ids_of
from arraystore._format.types import Bools, IdColumn, Int64s
from arraystore.storage.protocol import ObjectInfo


@dataclass(frozen=True, eq=False)
class ObjectColumns:
    """Objects of a page of a listing."""

    ids: IdColumn
    sizes: Int64s
    valid: Bools
    """Tells which of the ids are valid."""


def columns_of(page: Sequence[ObjectInfo], prefix: str) -> ObjectColumns:
    """Return the objects of a page of a listing below a prefix."""
    ids, valid = ids_from_texts([info.key[len(prefix) :] for info in page])
    return ObjectColumns(ids, np.array([info.size for info in page], dtype=np.int64), valid)


class ObjectTable:
    """Objects of one kind, by ascending ids, with their sizes in bytes and whether each is reached."""

    def __init__(self, ids: Iterable[IdColumn] = (), sizes: Iterable[Int64s] = ()) -> None:
        self.ids = np.concatenate([ids_of(b""), *ids])
        self.sizes = np.concatenate([np.empty(0, np.int64), *sizes])
        self.reached = np.zeros(len(self.ids), dtype=bool)

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, ids: bytes) -> Int64s:
        """Return the positions of concatenated ids; -1 for missing ones."""
        return find_ids(self.ids, ids_of(ids))

    def reach(self, ids: bytes) -> bool:
        """Mark concatenated ids as reached, and tell whether all of them exist."""
        at = self.find(ids)
        self.reached[at[at >= 0]] = True
        return bool((at >= 0).all())

    def unreached(self) -> tuple[bytes, int]:
        """Return the concatenated ids of the objects that are not reached, and their total size in bytes."""
        left = ~self.reached
        return np.ascontiguousarray(self.ids[left]).tobytes(), int(self.sizes[left].sum())
