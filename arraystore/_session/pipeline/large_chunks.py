"""Large chunks in files: each is read by itself, straight into the user's array where that takes the chunk as a whole.

That saves the copy out of a block and the steps in Python that a run of chunks takes.  96 MiB in chunks of 1 MiB take
0.7 of the time and 0.75 of the processor time, chunks of 256 KiB and of 16 MiB as much; compressed by zstd, chunks of
256 KiB take 0.75 of the processor time and those of 1 and 16 MiB 0.9.  Of chunks of 64 KiB, a step for each takes
longer than a run of them; of 128 KiB as long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from arraystore._chunks.read_memory import ReadMemory, is_filled_slowly
from arraystore._format.pack import CHECKSUM_BYTES, all_sound, are_sound_pieces
from arraystore._format.types import Array, Bytes
from arraystore._session.hierarchy import Hierarchy
from arraystore._session.pipeline.blocks import UnsoundBlockError
from arraystore._session.pipeline.codecs import ChunkCodec
from arraystore._session.pipeline.lookup import MISSING, Located, Place
from arraystore._session.pipeline.projection import Projection
from arraystore._session.pipeline.threads import share, thread_count
from arraystore.storage.protocol import BytesLike, Storage

_LARGE = 1 << 18
"""Bytes from which a chunk is worth a step of its own."""

_PIECE = 1 << 20
"""Bytes that are still in a cache when their checksum is computed; 256 KiB take 1.1 of the time, 64 KiB 1.9."""


def read_large_chunks(
    hierarchy: Hierarchy, located: Located, codec: ChunkCodec, views: Iterable[tuple[int, Array]]
) -> Located:
    """Read large chunks into the views of the user's array that take them, and return those that remain to be read.

    `views` has positions of chunks, each with the items of the user's array that items of that chunk are put into, in
    their order.  Raises `UndecodableError`, `UnsoundBlockError` and the errors of the storage.
    """
    reader = hierarchy.reader
    if codec.nbytes < _LARGE or not reader.storage.cheap_probes:
        return located
    wanted = [(at, view) for at, view in views if _takes(view, codec) and _is_stored(located, at)]
    if not wanted:
        return located
    share(wanted, lambda: _LargeReader(reader.storage, located, codec, reader.verify), thread_count())
    rest = located.place.copy()
    rest[[at for at, _ in wanted]] = MISSING
    return replace(located, place=rest)


def whole_chunks_in(selection: Projection, codec: ChunkCodec, out: Array) -> Iterator[tuple[int, Array]]:
    """Yield the positions of chunks that are selected as a whole, and their items in an array with all axes."""
    for box in selection.boxes():
        if box.is_whole(codec.shape):
            items = box.items(box.low, box.high, out)
            places = np.ndindex(items.shape[: len(box.low)])
            axes = [range(low, high) for low, high in zip(box.low, box.high, strict=True)]
            numbers = np.arange(selection.count).reshape(selection.sides)[np.ix_(*axes)]
            for at, place in zip(numbers.ravel().tolist(), places, strict=True):
                yield at, items[place]


def _takes(view: Array, codec: ChunkCodec) -> bool:
    """Tell whether a view takes a whole chunk; one that is not encoded is read into memory as it is stored."""
    return view.shape == codec.shape and (not codec.is_raw or _is_as_stored(view, codec))


def _is_as_stored(view: Array, codec: ChunkCodec) -> bool:
    return codec.order is None and view.dtype == codec.dtype and view.flags.c_contiguous


def _is_stored(located: Located, at: int) -> bool:
    """Tell whether a chunk is in an object, its checksum behind it."""
    number = int(located.place[at])
    place = located.places[number] if number >= 0 else Place()
    return bool(place.key) and place.own < 0 and place.data is None and place.framed


class _LargeReader:
    """Reads one chunk after the other, encoded ones into the same memory."""

    def __init__(self, storage: Storage, located: Located, codec: ChunkCodec, verify: bool) -> None:
        self.storage = storage
        self.located = located
        self.codec = codec
        self.verify = verify
        self.memory = ReadMemory()

    def __call__(self, chunk: tuple[int, Array]) -> None:
        at, view = chunk
        place, offset = self.located.places[int(self.located.place[at])], int(self.located.offset[at])
        if self.codec.is_raw:
            self._read(place, offset, view.reshape(-1).view(np.uint8))
        else:
            self._decode(self._encoded(place, offset, int(self.located.length[at])), view)

    def _read(self, place: Place, offset: int, target: Bytes) -> None:
        """Read a chunk that is not encoded."""
        if not self.verify:
            deque(self._filled(place.key, offset, target), maxlen=0)
        elif not are_sound_pieces(place.seed, offset, self._framed(place.key, offset, target)):
            raise UnsoundBlockError(place.key)

    def _framed(self, key: str, offset: int, target: Bytes) -> Iterator[BytesLike]:
        """Yield memory piece by piece as it is filled, then the checksum that follows, in the order of the file."""
        yield from self._filled(key, offset, target)
        end = offset + len(target)
        yield self.storage.get_range_sync(key, end, end + CHECKSUM_BYTES)

    def _filled(self, key: str, offset: int, target: Bytes) -> Iterator[BytesLike]:
        slowly = is_filled_slowly(target, offset)
        for start in range(0, len(target), _PIECE):
            piece = target[start : start + _PIECE].data
            memory = self.memory.at(len(piece), offset + start).data if slowly else piece
            data = self.storage.get_range_into(key, offset + start, memory)
            if data is not piece:
                piece[:] = data
            yield piece

    def _encoded(self, place: Place, offset: int, length: int) -> Bytes:
        """Return the bytes of an encoded chunk, valid until the next."""
        memory = self.memory.at(length + CHECKSUM_BYTES, offset).data
        data = np.frombuffer(self.storage.get_range_into(place.key, offset, memory), dtype=np.uint8)
        if self.verify and not all_sound(place.seed, offset, data, [offset], [length]):
            raise UnsoundBlockError(place.key)
        return data[:length]

    def _decode(self, data: npt.NDArray[np.uint8], view: Array) -> None:
        if _is_as_stored(view, self.codec):
            self.codec.decode_into(data, view.reshape(-1).view(np.uint8))
        else:
            view[...] = self.codec.decode_one(data.data)
