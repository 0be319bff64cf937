"""Memory that files are read into: used again, and at addresses to which the kernel copies fast.

AMD's processors take 3.5 times as long for `rep movsb`, by which the kernel copies, where the target is 1 to 31 bytes
ahead of its source, modulo the size of a page: 460 µs in place of 128 for a MiB out of the page cache
(https://lunnova.dev/articles/ryzen-slow-short-rep-mov).  Large arrays of numpy begin 16 bytes behind the beginning of a
page, and a chunk of its own at the beginning of a file, so without care they are read in just that way.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from arraystore._format.types import Bytes

_PAGE = 4096

_SLOW_AHEAD = 32
"""Bytes ahead of the source from which a target is filled fast again."""

_KEPT = 2 << 20
"""Bytes that a thread keeps."""

_AHEAD = 64
"""Bytes ahead of the source, modulo the size of a page, where this memory begins."""

_LEAST = 1 << 15
"""Bytes of a range that is read faster into memory that is there than into new memory."""


class ReadMemory:
    """Memory for ranges of files, which the next range overwrites."""

    def __init__(self) -> None:
        self._memory = np.empty(0, dtype=np.uint8)
        self._address = 0

    @property
    def nbytes(self) -> int:
        """Bytes that it holds on to."""
        return len(self._memory)

    @staticmethod
    def pays_for(size: int) -> bool:
        """Tell whether a range is read faster into memory that is there, and that a thread may keep."""
        return _LEAST <= size <= _KEPT

    def at(self, size: int, offset: int) -> Bytes:
        """Return memory of so many bytes for the range of a file that begins at an offset."""
        if len(self._memory) < size + _PAGE:
            self._memory = np.empty(size + _PAGE, dtype=np.uint8)
            self._address = _address_of(self._memory)
        start = (offset + _AHEAD - self._address) % _PAGE
        return self._memory[start : start + size]


class KeptMemory(threading.local):
    """Memory that a thread keeps for the next selection, which may be a chunk: pages of a new one must be cleared."""

    def __init__(self) -> None:
        self.memory = ReadMemory()

    def at(self, size: int, offset: int, large: ReadMemory) -> Bytes:
        """Return memory as `ReadMemory` does, from `large` where that is too much to be kept."""
        return (self.memory if size <= _KEPT else large).at(size, offset)


kept = KeptMemory()
"""Memory that threads read ranges into which they are done with before they read the next."""


def is_filled_slowly(target: Bytes, offset: int) -> bool:
    """Tell whether this processor copies slowly into an array from the offset of a file."""
    return 0 < (_address_of(target) - offset) % _PAGE < _SLOW_AHEAD and _is_amd()


def _address_of(array: Bytes) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@cache
def _is_amd() -> bool:
    with suppress(OSError), Path("/proc/cpuinfo").open("rb") as file:
        return b"AuthenticAMD" in file.read(1024)
    return False
