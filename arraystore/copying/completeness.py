"""Whether everything is there that the snapshots of a repository need: manifests, packs, as long as they have to be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from arraystore._concurrency import for_each
from arraystore._format.ids import ID_BYTES, id_from_text, id_to_text
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest
from arraystore._maintenance.collection.live_packs import visible_packs
from arraystore._repository.repository import Repository
from arraystore.copying.report import LeftOut
from arraystore.errors import FormatError, InvalidInputError, NotFoundError, RefNotFoundError

__all__ = ["Completeness", "check_complete"]

_CHUNKS = "chunks/"
_ROWS_KEPT = 1 << 20
_AT_A_TIME = 8


@dataclass
class Completeness:
    """What a check found.

    Parameters
    ----------
    snapshots
        How many were looked at.
    missing
        What is not there, or not whole, and which snapshot needs it.
    """

    snapshots: int = 0
    missing: list[LeftOut] = field(default_factory=list[LeftOut])


class _Packs:
    """Which packs are needed, and how long they have to be: twenty bytes each."""

    def __init__(self) -> None:
        self._ids: list[npt.NDArray[np.bytes_]] = []
        self._extents: list[npt.NDArray[np.int64]] = []
        self._rows = 0

    def need(self, manifest: Manifest) -> None:
        """Take note of the packs of a manifest."""
        if manifest.pack_count:
            self._ids.append(np.frombuffer(manifest.packs, dtype="S12"))
            self._extents.append(manifest.extents)
            self._rows += manifest.pack_count
            if self._rows > _ROWS_KEPT:
                ids, extents = self.columns()
                self._ids, self._extents, self._rows = [ids], [extents], 0

    def columns(self) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]:
        """Return ids, ascending and each once, and how many bytes each pack has to have."""
        if not self._ids:
            return np.empty(0, dtype="S12"), np.empty(0, dtype=np.int64)
        ids, at = np.unique(np.concatenate(self._ids), return_inverse=True)
        extents = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(extents, at.reshape(-1), np.concatenate(self._extents))
        return ids, extents


async def check_complete(repo: Repository, branches: Collection[str], known: Collection[str]) -> Completeness:
    """Check all snapshots of some branches, and of all tags.

    Parameters
    ----------
    repo
        The repository.
    branches
        Their names; those that are deleted are passed over.
    known
        Ids of snapshots that are known to be complete, with all before them.
    """
    check = _Check(repo)
    for branch in sorted(set(branches) & await repo.list_branches_async()):
        await check.list_snapshots(known, branch=branch)
    for tag in sorted(await repo.list_tags_async()):
        await check.list_snapshots(known, tag=tag)
    await for_each(check.snapshots, check.need_all, _AT_A_TIME)
    await check.compare_with_listing()
    return check.found


class _Check:
    """A check in the making.

    First all packs that any manifest names are compared with a listing.  Of those that are missing, a garbage
    collection may have taken what no snapshot shows any more; so for these, and only these, it is worked out whether
    some snapshot does.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._packs = _Packs()
        self._layers: dict[bytes, bool] = {}
        self._stacks: set[tuple[bytes, ...]] = set()
        self._lacking = np.empty(0, dtype="S12")
        self._shown: dict[bytes, str] = {}
        self.snapshots: list[str] = []
        self.found = Completeness()

    async def list_snapshots(
        self, known: Collection[str], *, branch: str | None = None, tag: str | None = None
    ) -> None:
        """Add the snapshots of a history that are not listed yet."""
        listed = {*known, *self.snapshots}
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
        """Take note of what a snapshot's manifests name."""
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
        """Find the packs that are not there, or not whole, and that a snapshot shows."""
        ids, extents = self._packs.columns()
        if not len(ids):
            return
        whole = np.zeros(len(ids), dtype=bool)
        async for page in self._repo.storage.list(_CHUNKS):
            there = np.array([_id_in(info.key) for info in page], dtype="S12")
            sizes = np.array([info.size for info in page], dtype=np.int64)
            at = np.minimum(np.searchsorted(ids, there), len(ids) - 1)
            whole[at[(ids[at] == there) & (extents[at] <= sizes)]] = True
        self._lacking = ids[~whole]
        if not len(self._lacking) or self.found.missing:
            return
        self._layers.clear()
        for snapshot in self.snapshots:
            await self._find_shown(snapshot)
        for pack, snapshot in sorted(self._shown.items()):
            key = _CHUNKS + id_to_text(pack.ljust(ID_BYTES, b"\0"))  # numpy takes zeros at the end away
            self._miss(key, f"is missing, or too short (snapshot {snapshot} needs it)")

    async def _find_shown(self, snapshot: str) -> None:
        """Find the lacking packs that a snapshot shows."""
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
                for pack in self._among_lacking(packs).tolist():
                    self._shown.setdefault(pack, snapshot)

    def _among_lacking(self, packs: bytes) -> npt.NDArray[np.bytes_]:
        ids = np.frombuffer(packs, dtype="S12")
        found: npt.NDArray[np.bytes_] = ids[np.isin(ids, self._lacking)]
        return found


def _id_in(key: str) -> bytes:
    """Return the id of the pack that a key names; that of no pack where it names none."""
    try:
        return id_from_text(key[len(_CHUNKS) :])
    except InvalidInputError:
        return bytes(ID_BYTES)
