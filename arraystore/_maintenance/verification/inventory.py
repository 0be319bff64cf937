"""Inventory of a repository's objects: one listing as columns, with marks on the reachable ones."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from arraystore._format.types import IdColumn, Int64s
from arraystore._maintenance.object_table import ObjectTable, columns_of
from arraystore._maintenance.verification.findings import Collector
from arraystore.storage.protocol import ObjectInfo, Storage

_NAMED = frozenset({"repo"})
_AT_A_TIME = 1 << 14
_END = "\U0010ffff"

SHELVES = {
    "chunks/": "packs",
    "manifests/": "manifests",
    "snapshots/": "checkpoints",
    "statistics/": "chunk_statistics",
    "transactions/": "change_logs",
}
"""Kinds of objects that ids name, by prefix."""

_SMALL = ("collections/", "hints/", "history/", "leases/")


@dataclass
class Inventory:
    """All objects of a repository."""

    shelves: dict[str, ObjectTable] = field(default_factory=lambda: dict.fromkeys(SHELVES, ObjectTable()))
    """Packs, manifests, checkpoints, statistics of chunks and change logs, by prefix."""
    small: dict[str, list[ObjectInfo]] = field(default_factory=lambda: {prefix: [] for prefix in _SMALL})
    """Hints, history pages and other objects with valid keys, by prefix."""
    strays: list[ObjectInfo] = field(default_factory=list[ObjectInfo])
    """Objects with keys of unknown form."""

    @property
    def packs(self) -> ObjectTable:
        """Packs."""
        return self.shelves["chunks/"]

    @property
    def manifests(self) -> ObjectTable:
        """Manifests that are objects of their own."""
        return self.shelves["manifests/"]

    @property
    def checkpoints(self) -> ObjectTable:
        """Checkpoints."""
        return self.shelves["snapshots/"]

    @property
    def chunk_statistics(self) -> ObjectTable:
        """Statistics of the chunks of layers."""
        return self.shelves["statistics/"]

    @property
    def transactions(self) -> ObjectTable:
        """Change logs that are objects of their own."""
        return self.shelves["transactions/"]


@dataclass(frozen=True)
class Audit:
    """Objects, findings and counts of one verification."""

    storage: Storage
    repository: bytes
    inventory: Inventory
    collector: Collector
    counts: Counter[str]


async def take_inventory(storage: Storage) -> Inventory:
    """List all objects, a thousand to a request, some prefixes at a time."""
    inventory = Inventory()
    strays = await asyncio.gather(
        *(_fill(storage, inventory, prefix) for prefix in SHELVES),
        *(_gather(storage, inventory, prefix) for prefix in _SMALL),
        _others(storage),
    )
    inventory.strays += itertools.chain.from_iterable(strays)
    return inventory


async def _fill(storage: Storage, inventory: Inventory, prefix: str) -> list[ObjectInfo]:
    """List the objects of one kind, and return those with other keys."""
    ids: list[IdColumn] = []
    sizes: list[Int64s] = []
    strays: list[ObjectInfo] = []
    async for page in storage.list(prefix):
        for at in range(0, len(page), _AT_A_TIME):
            part = page[at : at + _AT_A_TIME]
            there = columns_of(part, prefix)
            ids.append(there.ids[there.valid])
            sizes.append(there.sizes[there.valid])
            strays += [part[place] for place in np.flatnonzero(~there.valid).tolist()]
    inventory.shelves[prefix] = ObjectTable(ids, sizes)
    return strays


async def list_all(storage: Storage, prefix: str) -> list[ObjectInfo]:
    """List all objects below a prefix."""
    return [info async for page in storage.list(prefix) for info in page]


async def _gather(storage: Storage, inventory: Inventory, prefix: str) -> list[ObjectInfo]:
    inventory.small[prefix] = await list_all(storage, prefix)
    return []


async def _others(storage: Storage) -> list[ObjectInfo]:
    """List the objects between the known prefixes."""
    strays: list[ObjectInfo] = []
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
            return strays
        after = jump + _END
