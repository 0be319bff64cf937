"""A thread that reads chunks while another one resizes their array, which numbers uncommitted chunks anew."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import zarr

from arraystore import Repository, in_memory_storage
from arraystore._format.box import Box

ROWS = 40
WIDTH = 1024
READER = "reader"


def test_a_reader_finds_every_chunk_while_another_thread_resizes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Repository.create(in_memory_storage()).writable_session("main").store
    array = zarr.create_array(
        store, name="a", shape=(ROWS, 2 * WIDTH), chunks=(1, WIDTH), dtype="i4", compressors=None, fill_value=-1
    )
    for row in range(ROWS):
        array[row, :WIDTH] = row

    wrong: list[object] = []
    readers: list[threading.Thread] = []

    def read() -> None:
        for row in (1, 25):
            data = store.get_sync(f"a/c/{row}/0")
            values = None if data is None else np.unique(np.frombuffer(data.to_bytes(), "i4")).tolist()
            if values != [row]:
                wrong.append((row, values))

    def interrupted(box: Box) -> tuple[int, ...]:
        if threading.current_thread().name != READER:  # let a reader run, if it can, in the middle of the resizing
            readers.append(threading.Thread(target=read, name=READER))
            readers[-1].start()
            readers[-1].join(0.02)
        return tuple(int(np.prod(box.shape[axis + 1 :], dtype=np.int64)) for axis in range(len(box.shape)))

    with monkeypatch.context() as patch:
        patch.setattr(Box, "strides", property(interrupted))
        array.resize((ROWS, 100 * WIDTH))
    for reader in readers:
        reader.join()
    assert readers
    assert wrong == []
