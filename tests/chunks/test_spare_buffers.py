"""Memory of uploaded packs is used again, by any session, and within bounds."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

from arraystore import Repository, RepositoryConfig, in_memory_storage
from arraystore._chunks import pack_writer
from arraystore._chunks.spare_buffers import SpareBuffers


def test_a_buffer_that_was_given_back_is_taken_again_where_it_fits() -> None:
    spares = SpareBuffers(room=1000)
    buffer = spares.take(100)
    spares.give_back(buffer)
    assert spares.take(101) is not buffer
    assert spares.take(40) is not buffer
    assert spares.take(50) is buffer
    assert spares.take(50) is not buffer


def test_buffers_beyond_the_room_are_dropped_oldest_first() -> None:
    spares = SpareBuffers(room=250)
    buffers = [spares.take(100) for _ in range(3)]
    for buffer in buffers:
        spares.give_back(buffer)
    assert [spares.take(100) is buffer for buffer in buffers[1:]] == [True, True]
    large = spares.take(300)
    spares.give_back(large)
    assert spares.take(300) is not large


class _Watched(SpareBuffers):
    """Spare buffers that remember what was taken."""

    def __init__(self, room: int) -> None:
        super().__init__(room)
        self.taken: list[memoryview] = []

    def take(self, size: int) -> memoryview:
        self.taken.append(super().take(size))
        return self.taken[-1]


def test_sessions_share_the_memory_of_their_packs_and_not_their_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    spares = _Watched(room=1 << 20)
    monkeypatch.setattr(pack_writer, "pack_buffers", spares)
    config = RepositoryConfig(
        inline_chunk_threshold_bytes=0, own_object_threshold_bytes=1 << 16, pack_target_bytes=1 << 16
    )
    repo = Repository.create(in_memory_storage(), config=config)
    for number in range(3):
        session = repo.writable_session("main")
        array = zarr.create_array(session.store, name=f"a{number}", shape=512, chunks=64, dtype="i4", compressors=None)
        array[...] = np.arange(512) + number + 1
        session.commit("an array")
    assert len(spares.taken) == 3
    assert all(buffer is spares.taken[0] for buffer in spares.taken)
    session = repo.readonly_session("main")
    assert [session.read(f"a{number}", 0) for number in range(3)] == [1, 2, 3]
