"""What maintenance of a whole repository works on: its storage, its logs, and the newest record of each."""

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
from arraystore._log.retained_snapshots import Kept, kept_by, kept_snapshots
from arraystore._log.state import State
from arraystore.storage.protocol import Storage

__all__ = ["MaintenanceScope"]


@dataclass(frozen=True)
class MaintenanceScope:
    """A repository, as its maintenance reaches it.

    Parameters
    ----------
    storage, environment
        Where it is; time and chance.
    repository_log
        The log of tags, branches and settings.
    log
        Returns the log of a branch.
    known
        Returns a record of a branch that is known already, None for none.
    """

    storage: Storage
    environment: Environment
    repository_log: RepositoryLog
    log: Callable[[str], BranchLog]
    known: Callable[[str], Tip | None]

    async def tips(self, table: RepositoryTable) -> dict[str, Tip]:
        """Return the newest record of every branch, deleted ones included; what one log lacks of another is settled.

        What is made from here on is above all watermarks, whatever the clock here says.
        """
        names = sorted(table.branches)
        await asyncio.gather(*(self.log(name).survey() for name in names))
        tips = await asyncio.gather(*(settle(self.log(name), table, self.known(name)) for name in names))
        for name, tip in zip(names, tips, strict=True):
            await settle_deletion(name, self.repository_log, tip)
        self.environment.after(max([table.watermark, *(tip.state.life.fence for tip in tips)]))
        return dict(zip(names, tips, strict=True))

    async def kept(
        self, tips: dict[str, Tip], roots: list[Origin], announced: Sequence[Origin] = ()
    ) -> dict[str, Kept]:
        """Return which snapshots are kept, of every log."""
        return await kept_snapshots(self.storage, self._logs(tips), roots, announced)

    async def kept_by(self, tips: dict[str, Tip], announced: Origin) -> dict[str, Kept]:
        """Return what is kept for one snapshot that somebody may be about to make reachable."""
        return await kept_by(self.storage, self._logs(tips), announced)

    def _logs(self, tips: dict[str, Tip]) -> dict[str, tuple[BranchLog, State]]:
        return {name: (self.log(name), tip.state) for name, tip in tips.items()}
