"""Scope of maintenance: the storage of a repository, its logs, and the newest record of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arraystore._environment import Environment
from arraystore._format.lifecycle import Origin
from arraystore._format.repository_log import RepositoryTable
from arraystore._log.branch_entries import settle, settle_deletion
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip
from arraystore._log.repository_log import RepositoryLog
from arraystore._log.retained_snapshots import RetainedHistory, load_retained, load_retained_by
from arraystore._log.state import SnapshotState
from arraystore.storage.protocol import Storage


@dataclass(frozen=True)
class MaintenanceScope:
    """Access of maintenance jobs to one repository."""

    storage: Storage
    environment: Environment
    repository_log: RepositoryLog
    """Log of tags, branches and settings."""
    log: Callable[[str], BranchLog]
    """Returns the log of a branch by its name."""
    known: Callable[[str], Tip | None]
    """Returns the newest loaded record of a branch, None if none is in memory."""

    async def tips(self, table: RepositoryTable) -> dict[str, Tip]:
        """Load the newest record of every branch, deleted ones included, and complete operations that one log lacks.

        Ids made from then on are above all watermarks, whatever the clock of this machine says.
        """
        names = sorted(table.branches)
        await asyncio.gather(*(self.log(name).survey() for name in names))
        tips = await asyncio.gather(*(settle(self.log(name), table, self.known(name)) for name in names))
        for name, tip in zip(names, tips, strict=True):
            await settle_deletion(name, self.repository_log, tip)
        self.environment.after(max([table.watermark, *(tip.state.life.fence for tip in tips)]))
        return dict(zip(names, tips, strict=True))

    async def load_retained(
        self, tips: dict[str, Tip], roots: list[Origin], announced: Sequence[Origin] = ()
    ) -> dict[str, RetainedHistory]:
        """Load the retained snapshots of every log."""
        return await load_retained(self.storage, self._logs(tips), roots, announced)

    async def load_retained_by(self, tips: dict[str, Tip], announced: Origin) -> dict[str, RetainedHistory]:
        """Load the snapshots that one announced snapshot retains: a writer may be about to make it reachable."""
        return await load_retained_by(self.storage, self._logs(tips), announced)

    def _logs(self, tips: dict[str, Tip]) -> dict[str, tuple[BranchLog, SnapshotState]]:
        return {name: (self.log(name), tip.state) for name, tip in tips.items()}
