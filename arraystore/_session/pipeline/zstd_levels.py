"""Levels of zstd for arrays that leave them open, as Zarr's default codec does: the fastest one that costs no space.

Level 0 stands for the default of the C library, 3, which looks for matches across two megabytes.  In floating-point
fields, whose low bytes are noise, it finds a few short ones that save next to nothing and keep it from skipping.  So a
sample of each array is compressed at the levels 1, 2 and 3, and its chunks at the lowest level whose frames are at most
a hundredth longer than those of level 3.  MB/s at levels 3, 2 and 1, and how much longer the frames are than those of
level 3, of one thread of zstd 1.5.7:

    monthly air temperatures, float32, 1 MiB      229   426   609    0.0 %   0.0 %
    sea surface temperatures, float32, 1 MiB      204   369   437    0.3 %   0.3 %
    smooth maps with noise, float32, 1 MiB        318   839   891    0.4 %   0.4 %
    the same as series, float32, 16 MiB           182   367   883    0.6 %   1.4 %
    packed maps, int16, 64 KiB                    506   612   884    0.0 %   0.6 %
    packed maps, int16, 1 MiB                     187   836   835    4.7 %   4.7 %  (level 3)
    potential temperatures by height, float32      96   139   335    1.4 %  14.5 %  (level 3)

Frames of the lower levels are decompressed as fast or up to a third faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from arraystore._format.types import Bytes

DEFAULT_LEVEL = 3
"""Level that the C library takes for 0."""

_SMALLEST = 4 << 10
"""Bytes of a chunk from which the level matters: of smaller chunks, calls take most of the time."""

_LOWER_LEVELS = (1, 2)
_LONGER = 0.01
"""How much longer frames of a lower level may be."""

_WINDOW = 2 << 20
"""Bytes of a chunk that are compressed for a sample: the window of level 3, so that repetitions within it show."""

_FIRST = 8
"""How many times as much as its sample an array must write for one, so that small writes do not pay for it."""

_CHUNKS_PER_SAMPLED = 256
"""Count of chunks compressed in one call of which one is sampled."""

_LEAST_INTERVAL, _MOST_INTERVAL = 64, 1024
"""Bounds of the bytes written between two samples, in multiples of the sample.

The interval doubles after each sample that leaves level 3, which costs no space; a lower level may become wrong as an
array goes on.
"""


class SampledLevel:
    """Level for the chunks of one array, known after a first sample and looked at again from time to time.

    Threads share it without a lock: at worst two of them take the same sample.
    """

    def __init__(self) -> None:
        self._level: int | None = None
        self._unsampled = 0
        """Bytes written before the first sample."""
        self._interval = _LEAST_INTERVAL
        self._until_next = 0
        """Bytes to write before the next sample."""

    def level(self, chunks: Bytes, batch_nbytes: int, size_of: Callable[[int, Bytes], int]) -> int:
        """Return the level at which to compress chunks.

        Parameters
        ----------
        chunks
            Bytes of chunks, shape (n, bytes of a chunk).
        batch_nbytes
            Bytes of all chunks of the same write.
        size_of
            Returns the length of the frame of a chunk at a level.
        """
        if chunks.shape[1] < _SMALLEST:
            return DEFAULT_LEVEL
        sample = _sample(chunks)
        if self._level is None:
            self._unsampled += chunks.size
            if max(self._unsampled, batch_nbytes) < _FIRST * sample.size:
                return DEFAULT_LEVEL
        elif self._until_next > 0:
            self._until_next -= chunks.size
            return self._level
        self._until_next = self._interval * sample.size - chunks.size
        self._level = _cheapest(sample, size_of)
        keeps_default = self._level == DEFAULT_LEVEL
        self._interval = min(_MOST_INTERVAL, 2 * self._interval) if keeps_default else _LEAST_INTERVAL
        return self._level


def _sample(chunks: Bytes) -> Bytes:
    """Return the middle of evenly spaced chunks, one of `_CHUNKS_PER_SAMPLED`, at least of one."""
    count, size = chunks.shape
    step = min(count, _CHUNKS_PER_SAMPLED)
    width = min(size, _WINDOW)
    start = (size - width) // 2
    return chunks[step // 2 :: step, start : start + width]


def _cheapest(sample: Bytes, size_of: Callable[[int, Bytes], int]) -> int:
    most = (1 + _LONGER) * sum(size_of(DEFAULT_LEVEL, row) for row in sample)
    for level in _LOWER_LEVELS:
        if sum(size_of(level, row) for row in sample) <= most:
            return level
    return DEFAULT_LEVEL


@lru_cache(maxsize=4096)
def level_of_array(_node_id: bytes) -> SampledLevel:
    """Return the level of an array, which all sessions of this process share."""
    return SampledLevel()
