"""Storages under which the driver dies at a commit, or an executor while it writes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

from arraystore.storage import BytesLike, Storage, WrapperStorage
from tests.spark.clusters.work import executor

Moment = Literal["before", "after"]


class DiesAtCommit(WrapperStorage):
    """Kills the process at the first record that it writes to a branch.

    Parameters
    ----------
    inner
        The storage that does the work.
    moment
        Before the record is written; or after, when nobody has been told yet.
    """

    def __init__(self, inner: Storage, moment: Moment) -> None:
        super().__init__(inner)
        self.moment = moment

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        record = "/branch/" in key
        if record and self.moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        written = await super().put_if_absent(key, data)
        if record:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


class DiesAtRecord(WrapperStorage):
    """Kills the process before it writes the n-th record of a branch other than main.

    Parameters
    ----------
    inner
        The storage that does the work.
    record
        Which one, from 1.
    """

    def __init__(self, inner: Storage, record: int) -> None:
        super().__init__(inner)
        self.left = record

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        if "/branch/" in key and "/branch/main/" not in key:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)
        return await super().put_if_absent(key, data)


class KillsExecutorOnce(WrapperStorage):
    """Kills the executor of the first task that has written a chunk.

    Parameters
    ----------
    inner
        The storage that does the work.
    mark
        A file that is made by the one that is killed.
    """

    def __init__(self, inner: Storage, mark: str) -> None:
        super().__init__(inner)
        self.mark = mark

    def _wrote(self, key: str) -> None:
        from pyspark import TaskContext

        in_task = TaskContext.get() is not None
        if key.startswith("chunks/") and in_task and not Path(self.mark).exists():
            Path(self.mark).touch(exist_ok=False)
            os.kill(executor(), signal.SIGKILL)

    async def put(self, key: str, data: BytesLike) -> None:
        await super().put(key, data)
        self._wrote(key)

    def put_sync(self, key: str, data: BytesLike) -> None:
        super().put_sync(key, data)
        self._wrote(key)
