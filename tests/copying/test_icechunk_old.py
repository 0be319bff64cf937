"""The old repositories that Icechunk's own tests ship come over with every value of every snapshot.

They are in its source distribution, which pip gets from the index that it is configured for.  Where it cannot be had,
`test_icechunk_history` has a small one of each kind, made by the installed release.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import icechunk
import pytest
from zarr.core.buffer import default_buffer_prototype

from arraystore import MemoryStorage, Repository, local_filesystem_storage
from arraystore._runtime import run
from arraystore.copying import import_icechunk
from tests.copying.icechunk_support import plain
from tests.copying.support import contents

VERSION = "2.3.0"
_ELSEWHERE = "s3://testbucket/"
_BYTES = bytes(range(256)) * 16
"""In the place of the objects that virtual chunks are of, which nobody has."""

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folders of the repositories."""
    place = tmp_path_factory.mktemp("icechunk")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "icechunk", "--dest", str(place)]
    # Preparing the metadata may fail for want of a compiler of Rust: the archive is there by then.
    done = subprocess.run([*command, f"icechunk=={VERSION}"], capture_output=True, text=True, check=False)
    archives = sorted(place.glob("icechunk-*.tar.gz"))
    if not archives:
        pytest.skip(f"pip has no source distribution of icechunk {VERSION}: {done.stderr[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(place, [each for each in archive if "/tests/data/" in each.name], filter="data")
    return sorted(place.glob("*/icechunk-python/tests/data/*"))


async def _held(theirs: icechunk.Repository, snapshot: str) -> dict[str, bytes]:
    """Return all keys and values that Icechunk reads; of virtual chunks, the bytes that the reference names."""
    store = (await theirs.readonly_session_async(snapshot_id=snapshot)).store
    found: dict[str, bytes] = {}
    async for key in store.list_prefix(""):
        try:
            value = await store.get(key, default_buffer_prototype())
        except icechunk.IcechunkError:
            path, _, cell = key.partition("/c/")
            found[key] = await _referenced(store, path, [int(part) for part in cell.split("/")])
        else:
            assert value is not None
            found[key] = plain(key, value.to_bytes())
    return found


async def _referenced(store: icechunk.IcechunkStore, path: str, cell: list[int]) -> bytes:
    async for coords, _, urls, offsets, lengths, _ in store.array_chunk_iterator("/" + path):
        for row, url in enumerate(urls):
            if coords[row].tolist() == cell:
                assert url.startswith(_ELSEWHERE)
                return _BYTES[int(offsets[row]) :][: int(lengths[row])]
    raise AssertionError(f"{path} has no chunk {cell}")


def _elsewhere() -> MemoryStorage:
    storage = MemoryStorage("testbucket")
    for name in ("chunk-1", "chunk-2"):
        storage.put_sync(f"can_read_old/{name}", _BYTES)
    return storage


def test_every_value_of_every_snapshot_of_all_of_them_is_what_icechunk_reads(shipped: list[Path]) -> None:
    virtual = 0
    for folder in shipped:
        theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
        storage = MemoryStorage()
        virtual += import_icechunk(theirs, storage, files=local_filesystem_storage(folder)).virtual
        ours = Repository.open(storage, authorize_virtual_chunk_access={_ELSEWHERE: _elsewhere()})
        assert (ours.list_branches(), ours.list_tags()) == (theirs.list_branches(), theirs.list_tags()), folder.name
        roots = [{"branch": name} for name in theirs.list_branches()] + [{"tag": name} for name in theirs.list_tags()]
        originals = {info.id: info for root in roots for info in theirs.ancestry(**root)}
        for identifier, info in originals.items():
            copy = ours.lookup_snapshot(identifier)
            assert (copy.message, copy.written_at) == (info.message, info.written_at)
            shown = contents(ours.readonly_session(snapshot_id=identifier))
            assert shown == run(_held(theirs, identifier)), (folder.name, info.message)
    assert len(shipped) == 11
    assert virtual > 0
