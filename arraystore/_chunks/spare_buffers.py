"""Memory of packs that were uploaded, for the packs of any session of this process."""

from __future__ import annotations

import numpy as np

from arraystore.storage.forking import ForkSafeLock

MiB = 1 << 20


class SpareBuffers:
    """Buffers of at most `room` bytes in all that are used again, since the kernel clears the pages of new ones."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._lock = ForkSafeLock()
        self._buffers: list[memoryview] = []

    def take(self, size: int) -> memoryview:
        """Return a buffer of at least so many bytes, and not many more; what is in it is undefined."""
        with self._lock:
            for i, buffer in enumerate(self._buffers):
                if size <= len(buffer) <= 2 * size:
                    return self._buffers.pop(i)
        return memoryview(np.empty(size, dtype=np.uint8))  # not zeroed

    def give_back(self, buffer: memoryview) -> None:
        """Keep a buffer that nobody reads any more, and drop the oldest ones beyond the room."""
        with self._lock:
            self._buffers.append(buffer)
            while sum(map(len, self._buffers)) > self.room:
                self._buffers.pop(0)


pack_buffers = SpareBuffers(32 * MiB)
"""Buffers of this process: four packs, of which two are written, one waits and one is filled.

A new buffer for each pack of a session takes 12 % of the processor time of writing 48 MiB in chunks of 64 KiB.
"""
