"""What maintenance of a whole repository works on: its storage, its logs, and the newest record of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arraystore.commit.branch import Tip
from arraystore.commit.branching import settle
from arraystore.commit.environment import Environment
from arraystore.commit.log import BranchLog
from arraystore.commit.repository_log import RepositoryLog
from arraystore.commit.retention import Kept, kept_snapshots
from arraystore.format.lifecycle import Origin
from arraystore.format.repository_log import RepositoryTable
from arraystore.storage.protocol import Storage

__all__ = ["Grounds"]


@dataclass(frozen=True)
class Grounds:
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
        """Return the newest record of every branch, deleted ones included; logs that lag behind are settled.

        What is made from here on is above all watermarks, whatever the clock here says.
        """
        names = sorted(table.branches)
        tips = await asyncio.gather(*(settle(self.log(name), table, self.known(name)) for name in names))
        self.environment.after(max([table.watermark, *(tip.state.life.fence for tip in tips)]))
        return dict(zip(names, tips, strict=True))

    async def kept(
        self, tips: dict[str, Tip], roots: list[Origin], announced: Sequence[Origin] = ()
    ) -> dict[str, Kept]:
        """Return which snapshots are kept, of every log."""
        logs = {name: (self.log(name), tip.state) for name, tip in tips.items()}
        return await kept_snapshots(self.storage, logs, roots, announced)
