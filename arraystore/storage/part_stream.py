"""Parts of an object that is uploaded while it is still being written."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future

__all__ = ["AbandonedUploadError", "PartStream"]


class AbandonedUploadError(Exception):
    """The writer of an object has given it up; ends an upload, so that the service forgets its parts."""


class PartStream:
    """Parts of an object, in order: any thread feeds them, one task reads them.

    The memory of a part must not change until the upload has ended.
    """

    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()
        self._closed = self._abandoned = False
        self._reader: Future[None] | None = None
        self._lock = threading.RLock()  # the collector may abandon a stream at any allocation

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, part_bytes: int) -> PartStream:
        """Return the parts of an object that is complete."""
        stream, view = cls(), memoryview(data)
        for start in range(0, len(view), part_bytes):
            stream.push(view[start : start + part_bytes])
        stream.close()
        return stream

    def push(self, part: memoryview) -> None:
        """Add a part."""
        with self._lock:
            self._parts.append(part)
            self._wake()

    def close(self) -> None:
        """End the object after the parts so far."""
        with self._lock:
            self._closed = True
            self._wake()

    def abandon(self) -> None:
        """Give the object up: unless its last part was read, the upload ends with an error."""
        with self._lock:
            self._abandoned = True
            self._wake()

    def _wake(self) -> None:
        """Let the reader look again; the lock is held."""
        reader, self._reader = self._reader, None
        if reader is not None and reader.set_running_or_notify_cancel():
            reader.set_result(None)

    def __aiter__(self) -> PartStream:
        return self

    async def __anext__(self) -> memoryview:
        while True:
            with self._lock:
                if self._abandoned:
                    raise AbandonedUploadError("the writer has given the object up")
                if self._parts:
                    return self._parts.popleft()
                if self._closed:
                    raise StopAsyncIteration
                reader = self._reader = Future()
            await asyncio.wrap_future(reader)
