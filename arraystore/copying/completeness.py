"""Whether everything is there that the snapshots of a repository need: manifests, packs, as long as they have to be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from arraystore.copying.budget import for_each
from arraystore.copying.report import LeftOut
from arraystore.errors import FormatError, InvalidInputError, NotFoundError
from arraystore.format.ids import ID_BYTES, id_from_text, id_to_text
from arraystore.format.layer import Layer
from arraystore.format.manifest import Manifest
from arraystore.repository import Repository

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
    found = Completeness()
    packs = _Packs()
    seen: set[bytes] = set()

    async def check(snapshot: str) -> None:
        try:
            session = await repo.readonly_session_async(snapshot_id=snapshot)
        except (NotFoundError, FormatError) as error:
            found.missing.append(LeftOut(f"snapshot {snapshot}", str(error)))
            return
        manifests = session.context.manifests
        nodes = session.hierarchy.state.nodes.values()
        new = {layer.id: layer for node in nodes for layer in node.layers if layer.id not in seen}
        seen.update(new)

        async def need(layer: Layer) -> None:
            try:
                packs.need(await manifests.load(layer))
            except (NotFoundError, FormatError) as error:
                found.missing.append(LeftOut(layer.key, f"{error} (snapshot {snapshot} needs it)"))

        await for_each(new.values(), need, _AT_A_TIME)
        found.snapshots += 1

    looked_at: set[str] = set()
    for branch in sorted(set(branches) & await repo.list_branches_async()):
        await for_each(await _snapshots(repo, found, looked_at, known, branch=branch), check, _AT_A_TIME)
    for tag in sorted(await repo.list_tags_async()):
        await for_each(await _snapshots(repo, found, looked_at, known, tag=tag), check, _AT_A_TIME)
    await _check_packs(repo, packs, found)
    return found


async def _snapshots(
    repo: Repository,
    found: Completeness,
    looked_at: set[str],
    known: Collection[str],
    *,
    branch: str | None = None,
    tag: str | None = None,
) -> list[str]:
    """Return the snapshots of a history that have not been looked at."""
    new: list[str] = []
    try:
        async for info in repo.async_ancestry(branch=branch, tag=tag):
            if info.id in known or info.id in looked_at:
                break
            new.append(info.id)
    except (NotFoundError, FormatError) as error:
        found.missing.append(LeftOut(f"history of {branch or tag}", str(error)))
    looked_at.update(new)
    return new


async def _check_packs(repo: Repository, packs: _Packs, found: Completeness) -> None:
    """Compare the packs that are needed with a listing."""
    ids, extents = packs.columns()
    if not len(ids):
        return
    whole = np.zeros(len(ids), dtype=bool)
    async for page in repo.storage.list(_CHUNKS):
        there = np.array([_id_in(info.key) for info in page], dtype="S12")
        sizes = np.array([info.size for info in page], dtype=np.int64)
        at = np.minimum(np.searchsorted(ids, there), len(ids) - 1)
        whole[at[(ids[at] == there) & (extents[at] <= sizes)]] = True
    for i in np.flatnonzero(~whole).tolist():
        key = _CHUNKS + id_to_text(bytes(ids[i]).ljust(ID_BYTES, b"\0"))  # numpy takes zeros at the end away
        found.missing.append(LeftOut(key, f"is missing, or has less than {extents[i]} bytes"))


def _id_in(key: str) -> bytes:
    """Return the id of the pack that a key names; that of no pack where it names none."""
    try:
        return id_from_text(key[len(_CHUNKS) :])
    except InvalidInputError:
        return bytes(ID_BYTES)
