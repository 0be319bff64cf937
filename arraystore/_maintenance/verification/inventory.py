"""Inventory of a repository's objects: one listing as columns, with marks on the reachable ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from arraystore._format.ids import ID_BYTES, ids_from_texts
from arraystore._format.types import Bools, IdColumn, Int64s
from arraystore.storage.protocol import ObjectInfo, Storage

_NAMED = frozenset({"repo"})
_AT_A_TIME = 1 << 14
_END = "\U0010ffff"

SHELVES = ("chunks/", "manifests/", "snapshots/", "transactions/")
_SMALL = ("collections/", "hints/", "history/", "leases/")


class Shelf:
    """Objects of one kind, by their ids, below the key prefix `prefix`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._ids: list[IdColumn] = []
        self._sizes: list[Int64s] = []
        self.ids: IdColumn = np.empty(0, dtype=f"S{ID_BYTES}")
        self.sizes: Int64s = np.empty(0, dtype=np.int64)
        self.reached: Bools = np.empty(0, dtype=bool)
        self.strays: list[ObjectInfo] = []

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, page: Sequence[ObjectInfo]) -> None:
        """Add a page of a listing."""
        start = len(self.prefix)
        for part in batched_page(page):
            ids, good = ids_from_texts([info.key[start:] for info in part])
            sizes = np.fromiter((info.size for info in part), dtype=np.int64, count=len(part))
            if not bool(good.all()):
                self.strays += [info for info, fine in zip(part, good.tolist(), strict=True) if not fine]
            self._ids.append(ids[good])
            self._sizes.append(sizes[good])

    def close(self) -> None:
        """Concatenate the pages, which a listing returns in order."""
        if self._ids:
            self.ids, self.sizes = np.concatenate(self._ids), np.concatenate(self._sizes)
        self._ids, self._sizes = [], []
        self.reached = np.zeros(len(self.ids), dtype=bool)

    def find(self, ids: bytes) -> Int64s:
        """Return the positions of concatenated ids; -1 for missing ones."""
        wanted = np.frombuffer(ids, dtype=f"S{ID_BYTES}")
        if not len(self.ids):
            return np.full(len(wanted), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        places: Int64s = np.where(self.ids[at] == wanted, at, -1).astype(np.int64)
        return places

    def reach(self, identifier: bytes) -> bool:
        """Mark an object as reachable, and tell whether it exists."""
        at = int(self.find(identifier)[0])
        if at >= 0:
            self.reached[at] = True
        return at >= 0


def batched_page(page: Sequence[ObjectInfo]) -> list[Sequence[ObjectInfo]]:
    """Cut a page so that columns made of it stay small."""
    return [page[at : at + _AT_A_TIME] for at in range(0, len(page), _AT_A_TIME)]


@dataclass
class Inventory:
    """All objects of a repository."""

    shelves: dict[str, Shelf] = field(default_factory=lambda: {prefix: Shelf(prefix) for prefix in SHELVES})
    """Packs, manifests, checkpoints and change logs, by prefix."""
    small: dict[str, list[ObjectInfo]] = field(default_factory=lambda: {prefix: [] for prefix in _SMALL})
    """Hints, history pages and other objects with valid keys, by prefix."""
    strays: list[ObjectInfo] = field(default_factory=list[ObjectInfo])
    """Objects with keys of unknown form."""

    @property
    def packs(self) -> Shelf:
        """Packs."""
        return self.shelves["chunks/"]

    @property
    def manifests(self) -> Shelf:
        """Manifests that are objects of their own."""
        return self.shelves["manifests/"]

    @property
    def checkpoints(self) -> Shelf:
        """Checkpoints."""
        return self.shelves["snapshots/"]

    @property
    def transactions(self) -> Shelf:
        """Change logs that are objects of their own."""
        return self.shelves["transactions/"]


async def take_inventory(storage: Storage) -> Inventory:
    """List all objects, a thousand to a request, some prefixes at a time."""
    inventory = Inventory()
    await asyncio.gather(
        *(_fill(storage, shelf) for shelf in inventory.shelves.values()),
        *(_gather(storage, prefix, infos) for prefix, infos in inventory.small.items()),
        _others(storage, inventory.strays),
    )
    for shelf in inventory.shelves.values():
        inventory.strays += shelf.strays
    return inventory


async def _fill(storage: Storage, shelf: Shelf) -> None:
    async for page in storage.list(shelf.prefix):
        shelf.add(page)
    shelf.close()


async def list_all(storage: Storage, prefix: str) -> list[ObjectInfo]:
    """List all objects below a prefix."""
    return [info async for page in storage.list(prefix) for info in page]


async def _gather(storage: Storage, prefix: str, infos: list[ObjectInfo]) -> None:
    infos += await list_all(storage, prefix)


async def _others(storage: Storage, strays: list[ObjectInfo]) -> None:
    """List the objects between the known prefixes."""
    prefixes = sorted((*SHELVES, *_SMALL, "refs/"))
    after = ""
    while True:
        jump = None
        async for page in storage.list("", after):
            for info in page:
                jump = next((prefix for prefix in prefixes if info.key.startswith(prefix)), None)
                if jump is not None:
                    break
                if info.key not in _NAMED:
                    strays.append(info)
            if jump is not None:
                break
        if jump is None:
            return
        after = jump + _END
