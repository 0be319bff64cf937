"""A storage under which the driver dies at its commit."""

from __future__ import annotations

import os
import signal
from typing import Literal

from arraystore.storage import BytesLike, Storage, WrapperStorage

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
