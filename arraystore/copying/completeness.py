"""Checks that all manifests and packs which the snapshots of a repository need exist, with the expected sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from arraystore._chunks.layer_lookup import visible_packs
from arraystore._format.ids import LayerId, PackId, find_ids, id_to_text, ids_of, split_ids
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._format.types import IdColumn, Int64s
from arraystore._maintenance.object_table import columns_of
from arraystore._repository.repository import Repository
from arraystore._runtime.concurrency import for_each
from arraystore.copying.report import LeftOut
from arraystore.errors import FormatError, NotFoundError, RefNotFoundError

__all__ = ["Completeness", "check_complete"]

_CHUNKS = "chunks/"
_ROWS_KEPT = 1 << 20
_AT_A_TIME = 8


@dataclass
class Completeness:
    """Result of a check."""

    snapshots: int = 0
    """Count of snapshots that were checked."""
    missing: list[LeftOut] = field(default_factory=list[LeftOut])
    """Objects that are missing or too short, with a snapshot that needs them."""


class _NeededPacks:
    """Table of the packs that are needed and their sizes, twenty bytes each."""

    def __init__(self) -> None:
        self._ids: list[IdColumn] = []
        self._extents: list[Int64s] = []
        self._rows = 0

    def need(self, manifest: Manifest) -> None:
        """Add the packs of a manifest."""
        if manifest.pack_count:
            self._ids.append(ids_of(manifest.packs))
            self._extents.append(manifest.extents)
            self._rows += manifest.pack_count
            if self._rows > _ROWS_KEPT:
                ids, extents = self.columns()
                self._ids, self._extents, self._rows = [ids], [extents], 0

    def columns(self) -> tuple[IdColumn, Int64s]:
        """Return distinct ids in ascending order, and the expected size of each pack."""
        if not self._ids:
            return ids_of(b""), np.empty(0, dtype=np.int64)
        ids, at = np.unique(np.concatenate(self._ids), return_inverse=True)
        extents = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(extents, at.reshape(-1), np.concatenate(self._extents))
        return ids, extents


async def check_complete(repo: Repository, branches: Collection[str], complete: Collection[str]) -> Completeness:
    """Check all snapshots of some branches, and of all tags."""
    check = _CompletenessCheck(repo)
    for branch in sorted(set(branches) & await repo.list_branches_async()):
        await check.list_snapshots(complete, branch=branch)
    for tag in sorted(await repo.list_tags_async()):
        await check.list_snapshots(complete, tag=tag)
    await for_each(check.snapshots, check.need_all, _AT_A_TIME)
    await check.compare_with_listing()
    return check.found


class _CompletenessCheck:
    """Checks one repository.

    First all packs that any manifest names are compared with a listing. A garbage collection may have deleted packs
    that no snapshot references any more, so only for missing packs the snapshots are searched.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._packs = _NeededPacks()
        self._layers: dict[LayerId, bool] = {}
        self._stacks: set[tuple[LayerId, ...]] = set()
        self._lacking = ids_of(b"")
        self._shown: dict[PackId, str] = {}
        self.snapshots: list[str] = []
        self.found = Completeness()

    async def list_snapshots(
        self, complete: Collection[str], *, branch: str | None = None, tag: str | None = None
    ) -> None:
        """Add the snapshots of a history that are not yet listed."""
        listed = {*complete, *self.snapshots}
        try:
            async for info in self._repo.async_ancestry(branch=branch, tag=tag):
                if info.id in listed:
                    break
                self.snapshots.append(info.id)
        except (NotFoundError, FormatError) as error:
            tip = None if branch is None else self._repo.context.known_tip(branch)
            if not (isinstance(error, RefNotFoundError) and tip is not None and tip.state.life.deleted):
                self._miss(f"history of {branch or tag}", str(error))

    def _miss(self, key: str, reason: str) -> None:
        self.found.missing.append(LeftOut(key, reason))

    async def need_all(self, snapshot: str) -> None:
        """Add the packs that a snapshot's manifests name."""
        try:
            session = await self._repo.readonly_session_async(snapshot_id=snapshot)
        except (NotFoundError, FormatError) as error:
            self._miss(f"snapshot {snapshot}", str(error))
            return
        manifests = session.context.manifests
        nodes = session.hierarchy.state.nodes.values()
        new = {layer.id: layer for node in nodes for layer in node.layers if layer.id not in self._layers}
        self._layers.update(dict.fromkeys(new, False))

        async def need(layer: Layer) -> None:
            try:
                self._packs.need(await manifests.load(layer))
            except (NotFoundError, FormatError) as error:
                self._miss(layer.key, f"{error} (snapshot {snapshot} needs it)")

        await for_each(new.values(), need, _AT_A_TIME)
        self.found.snapshots += 1

    async def compare_with_listing(self) -> None:
        """Find the packs that are missing or too short and that a snapshot references."""
        ids, extents = self._packs.columns()
        if not len(ids):
            return
        whole = np.zeros(len(ids), dtype=bool)
        async for page in self._repo.storage.list(_CHUNKS):
            there = columns_of(page, _CHUNKS)
            at = find_ids(ids, there.ids)
            whole[at[there.valid & (at >= 0) & (extents[at] <= there.sizes)]] = True
        self._lacking = ids[~whole]
        if not len(self._lacking) or self.found.missing:
            return
        self._layers.clear()
        for snapshot in self.snapshots:
            await self._find_shown(snapshot)
        for pack, snapshot in sorted(self._shown.items()):
            self._miss(_CHUNKS + id_to_text(pack), f"is missing, or too short (snapshot {snapshot} needs it)")

    async def _find_shown(self, snapshot: str) -> None:
        """Find the missing packs that a snapshot references."""
        session = await self._repo.readonly_session_async(snapshot_id=snapshot)
        manifests = session.context.manifests
        for node in session.hierarchy.state.nodes.values():
            stack = tuple([layer.id for layer in node.layers])
            if stack in self._stacks:
                continue
            self._stacks.add(stack)
            for layer in node.layers:
                if layer.id not in self._layers:
                    manifest = await manifests.load(layer)
                    self._layers[layer.id] = bool(len(self._among_lacking(manifest.packs)))
            if not any(self._layers[identifier] for identifier in stack):
                continue
            async for packs in visible_packs(manifests, node.layers):
                for pack in split_ids(self._among_lacking(packs).tobytes(), PackId):
                    self._shown.setdefault(pack, snapshot)

    def _among_lacking(self, packs: bytes) -> IdColumn:
        ids = ids_of(packs)
        return ids[np.isin(ids, self._lacking)]
