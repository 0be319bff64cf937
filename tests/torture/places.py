"""Where a torture takes place: the storage as actors see it, their clocks, and what they write down."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore import RepositoryConfig, StorageError, local_filesystem_storage, s3_storage
from arraystore._environment import Environment
from arraystore._format.ids import IdSource
from arraystore.storage import Storage
from arraystore.storage.protocol import ByteRange, BytesLike
from arraystore.storage.settings import StorageRetriesSettings, StorageSettings, StorageTimeoutSettings
from arraystore.storage.wrapper import WrapperStorage

__all__ = ["CONFIG", "DAY", "Clock", "FaultyDirectory", "Place", "values_of"]

DAY = 86_400

CONFIG = RepositoryConfig(
    inline_chunk_threshold_bytes=32,
    own_object_threshold_bytes=1 << 15,
    pack_target_bytes=1 << 16,
    max_bytes_in_flight=1 << 18,
)

_SETTINGS = StorageSettings(
    timeouts=StorageTimeoutSettings(connect=5, request=15, read=15),
    retries=StorageRetriesSettings(max_tries=6, initial_backoff=0.02, max_backoff=0.5),
)
_LONGEST_DELAY = 1.0


@dataclass(frozen=True)
class Clock:
    """The clock of a process.

    Parameters
    ----------
    ahead
        Seconds by which it differs from the real one.
    """

    ahead: float = 0.0

    def seconds(self) -> float:
        """Return the time, in seconds since 1970."""
        return time.time() + self.ahead

    def now(self) -> datetime:
        """Return the time as the callers of a repository give it."""
        return datetime.fromtimestamp(self.seconds(), UTC)

    def environment(self) -> Environment:
        """Return what makes repositories of this process use the clock."""
        ids = IdSource(lambda: int(self.seconds() * 1000))
        return Environment(now_us=lambda: int(self.seconds() * 1_000_000), new_id=ids)


@dataclass(frozen=True)
class Place:
    """Where a repository is, as processes tell one another.

    Parameters
    ----------
    storage
        Arguments of the constructor of its storage; a path, or what `s3_storage` takes.
    journals
        Directory of the journals.
    rate
        Share of the requests to a directory that something happens to; a proxy has a rate of its own.
    direct
        What to change of `storage` for whoever wants no faults: the address of the server behind a proxy.
    """

    storage: dict[str, Any]
    journals: Path
    rate: float = 0.0
    direct: tuple[tuple[str, Any], ...] = ()

    def open(self, seed: int = 0) -> Storage:
        """Return the storage as actors see it, with faults."""
        if "path" not in self.storage:
            return s3_storage(**self.storage, settings=_SETTINGS)
        directory = local_filesystem_storage(self.storage["path"])
        return FaultyDirectory(directory, random.Random(seed), self.rate) if self.rate else directory

    def open_directly(self) -> Storage:
        """Return the storage without faults."""
        return replace(self, storage=self.storage | dict(self.direct), rate=0.0, direct=()).open()

    # -- journals

    def note(self, name: str, **what: Any) -> None:
        """Append a line to a journal of this process, durably."""
        with (self.journals / f"{name}.{os.getpid()}").open("a") as file:
            file.write(json.dumps(what) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def count(self, what: str, **more: Any) -> None:
        """Note that something has happened."""
        self.note("count", what=what, **more)

    def notes(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield what processes have noted; a line that is cut off was not acknowledged."""
        for path in sorted(self.journals.glob(f"{name}.*")):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    yield json.loads(line)

    def newest_values(self, branch: str = "main") -> dict[int, int]:
        """Return the newest acknowledged value of each row of a branch."""
        newest: dict[int, int] = {}
        for note in self.notes("writer"):
            if "done" in note and note["branch"] == branch:
                for row in note["rows"]:
                    newest[row] = max(newest.get(row, -1), note["done"])
        return newest


class FaultyDirectory(WrapperStorage):
    """A directory on a disk that fails, is slow, and tells writers that somebody else had been there.

    Parameters
    ----------
    inner
        The directory.
    chance
        Draws what happens.
    rate
        Share of the requests that something happens to.
    """

    def __init__(self, inner: Storage, chance: random.Random, rate: float) -> None:
        super().__init__(inner)
        self._chance = chance
        self._rate = rate

    def _draw(self, *faults: str) -> str:
        """Return what happens to a request; waits where that is to be slow."""
        fault = self._chance.choice(faults) if self._chance.random() < self._rate else ""
        if fault == "delay":
            time.sleep(self._chance.random() * _LONGEST_DELAY)
        return fault

    def _fail(self, fault: str, when: str, key: str) -> None:
        if fault == when:
            raise StorageError(f"{self.location}: [Errno 5] Input/output error: {key!r}, {when} it was done")

    async def get(self, key: str) -> BytesLike:
        """Return a whole object, or the beginning of it."""
        return self._got(key, await super().get(key))

    def get_sync(self, key: str) -> BytesLike:
        """Like `get`."""
        return self._got(key, super().get_sync(key))

    def _got(self, key: str, data: BytesLike) -> BytesLike:
        fault = self._draw("delay", "before", "short")
        self._fail(fault, "before", key)
        return memoryview(data)[: len(data) // 2] if fault == "short" else data

    async def get_ranges(self, key: str, ranges: list[ByteRange]) -> list[BytesLike]:  # type: ignore[override]
        """Return several byte ranges."""
        self._fail(self._draw("delay", "before"), "before", key)
        return await super().get_ranges(key, ranges)

    def get_range_sync(self, key: str, start: int, stop: int) -> BytesLike:
        """Return a byte range."""
        self._fail(self._draw("delay", "before"), "before", key)
        return super().get_range_sync(key, start, stop)

    async def put(self, key: str, data: BytesLike) -> None:
        """Write an object, or fail before or after that."""
        fault = self._draw("delay", "before", "after")
        self._fail(fault, "before", key)
        await super().put(key, data)
        self._fail(fault, "after", key)

    def put_sync(self, key: str, data: BytesLike) -> None:
        """Like `put`."""
        fault = self._draw("delay", "before", "after")
        self._fail(fault, "before", key)
        super().put_sync(key, data)
        self._fail(fault, "after", key)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists, or fail before or after that."""
        fault = self._draw("delay", "before", "after")
        self._fail(fault, "before", key)
        written = await super().put_if_absent(key, data)
        self._fail(fault, "after", key)
        return written

    async def put_new(self, key: str, data: BytesLike) -> bool:
        """Write an object unless one of this key exists; now and then it is written, and said to be somebody else's."""
        written = await self.put_if_absent(key, data)
        return written and self._draw("denied", "told") != "denied"


def values_of(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the one value of each row, each of which was written as a whole."""
    assert (array == array[:, :1]).all(), "a chunk is torn"
    return np.asarray(array[:, 0])
