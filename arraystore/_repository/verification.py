"""Verification, repair and statistics of a repository."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from arraystore._context.context import Context
from arraystore._log.loading import load_checkpoint
from arraystore._log.state import SnapshotState
from arraystore._maintenance.collection.summary import StageProgress
from arraystore._maintenance.verification.findings import VerifyReport
from arraystore._maintenance.verification.repair import RepairReport
from arraystore._maintenance.verification.repair import repair as repair_repository
from arraystore._maintenance.verification.statistics import RepositoryStatistics, gather_statistics
from arraystore._maintenance.verification.verify import Verification
from arraystore._maintenance.verification.verify import verify as verify_repository
from arraystore._repository.scope import remote_readers
from arraystore._runtime.engine import EngineOption
from arraystore.errors import InvalidInputError, ObjectNotFoundError, RefNotFoundError

_TRIES = 3
"""Times that statistics are begun, where branches and tags are deleted and collected meanwhile."""


@dataclass(frozen=True)
class ChunkStorageStats:
    """Bytes of the chunks of all snapshots that are retained.

    Parameters
    ----------
    native_bytes
        Size of the packs that contain them.
    virtual_bytes
        Bytes in source objects, as often as commits have referred to them.
    inlined_bytes
        Bytes in manifests, as often as commits have written them.
    """

    native_bytes: int
    virtual_bytes: int
    inlined_bytes: int

    def non_virtual_bytes(self) -> int:
        """Return the bytes in the repository."""
        return self.native_bytes + self.inlined_bytes

    def total_bytes(self) -> int:
        """Return all bytes."""
        return self.native_bytes + self.virtual_bytes + self.inlined_bytes


async def verify(
    context: Context,
    level: Literal["metadata", "chunks"] = "metadata",
    *,
    sample: int | None = None,
    engine: EngineOption = "threads",
    progress: StageProgress | None = None,
) -> VerifyReport:
    """Verify all objects reachable from branches and tags, and report problems."""
    return await verify_repository(
        context.storage,
        context.repository,
        context.environment,
        context.reader,
        level,
        sample=sample,
        progress=progress,
        remote=remote_readers(context, engine),
    )


async def repair(context: Context, *, dry_run: bool = False, progress: StageProgress | None = None) -> RepairReport:
    """Verify the metadata, and rebuild what can be rebuilt from the logs."""
    return await repair_repository(
        context.storage, context.repository, context.environment, dry_run=dry_run, progress=progress
    )


async def statistics(context: Context, branch: str, limit: int) -> RepositoryStatistics:
    """Measure a repository, and the newest snapshots of a branch."""
    if type(limit) is not int or limit < 0:
        raise InvalidInputError(f"limit={limit!r} must be an integer >= 0")
    for _ in range(_TRIES - 1):
        with suppress(ObjectNotFoundError):  # deleted and collected since its name was read: read the names again
            return await _statistics(context, branch, limit)
    return await _statistics(context, branch, limit)


async def _statistics(context: Context, branch: str, limit: int) -> RepositoryStatistics:
    tip = await context.tip(branch)
    others = await _other_snapshots(context, branch)
    return await gather_statistics(context.storage, context.reader, context.log(branch), tip, others, limit)


async def _other_snapshots(context: Context, branch: str) -> list[SnapshotState]:
    """Return the newest snapshots of all other branches, and those of tags."""
    table = await context.repository_log.table()
    others: list[SnapshotState] = []
    for name, row in sorted(table.branches.items()):
        if name != branch and not row.deleted:
            with suppress(RefNotFoundError):  # deleted meanwhile
                others.append((await context.tip(name)).state)
    others += [await load_checkpoint(context.storage, tag.origin.checkpoint) for tag in table.tags.values()]
    return others


async def chunk_storage_stats(context: Context) -> ChunkStorageStats:
    """Return the bytes of the chunks of all snapshots that are retained."""
    verification = Verification(context.storage, context.repository, context.environment)
    await verification.run()
    packs, counts = verification.inventory.packs, verification.counts
    native = int(packs.sizes[packs.reached].sum())
    return ChunkStorageStats(native, counts["virtual_bytes"], counts["inlined_bytes"])
