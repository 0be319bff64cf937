"""A process that commits for days: what it keeps in memory is bounded by configuration, not by what it has done."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import tracemalloc
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu

from arraystore import BasicConflictSolver, ConflictDetector, Repository, RepositoryConfig, in_memory_storage
from arraystore._chunks import cells
from arraystore._chunks.block_cache import BlockCache
from arraystore._chunks.manifest_cache import ManifestCache
from arraystore._format.box import Box
from arraystore._format.envelope import bind_object
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest, encode_manifest
from arraystore._log.record_cache import RecordCache
from arraystore._runtime import run
from arraystore._session.regions import layout
from arraystore.storage import MemoryStorage, Storage
from tests.commit.support import DistantStorage

KiB = 1 << 10
SMALL = RepositoryConfig(
    manifest_cache_bytes=32 * KiB, chunk_cache_bytes=32 * KiB, log_cache_bytes=32 * KiB, branches_in_memory=3
)
CYCLE = 64
"""Commits after which a log has its checkpoint, its page and its folds, so that what is kept can be compared."""

Act = Callable[[Repository, int], None]


def new_repository(storage: Storage) -> Repository:
    repository = Repository.create(storage, config=SMALL)
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    group.create_array("small", shape=(CYCLE,), chunks=(1,), dtype="f4", compressors=None)
    group.create_array("packed", shape=(CYCLE, 256), chunks=(1, 256), dtype="f4", compressors=None)
    group.create_array("t", shape=(0,), chunks=(1,), dtype="f4", dimension_names=("time",))
    session.commit("arrays")
    return repository


def put(repository: Repository, i: int, branch: str = "main") -> None:
    session = repository.writable_session(branch)
    session.store.set_sync(f"small/c/{i % CYCLE}", cpu.Buffer.from_bytes(np.float32(i).tobytes()))
    session.commit(f"commit {i}")


def put_and_read(repository: Repository, i: int) -> None:
    session = repository.writable_session("main")
    value = np.full(256, i, "f4").tobytes()
    session.store.set_sync(f"packed/c/{i % CYCLE}/0", cpu.Buffer.from_bytes(value))
    session.commit(f"commit {i}")
    reader = repository.readonly_session("main")
    read = reader.store.get_sync(f"packed/c/{i % CYCLE}/0", prototype=cpu.buffer_prototype)
    assert read is not None
    assert read.to_bytes() == value


def append(repository: Repository, i: int) -> None:
    session = repository.writable_session("main")
    session.append({"t": np.array([i], "f4")}, "time")
    session.commit(f"append {i}", rebase_with=ConflictDetector())


def amend(repository: Repository, i: int) -> None:
    session = repository.writable_session("main")
    session.store.set_sync(f"small/c/{i % CYCLE}", cpu.Buffer.from_bytes(np.float32(i).tobytes()))
    session.amend(f"amended {i}")


def lose_a_race(repository: Repository, i: int) -> None:
    late = repository.writable_session("main")
    late.store.set_sync(f"small/c/{i % CYCLE}", cpu.Buffer.from_bytes(np.float32(-i).tobytes()))
    put(repository, i)
    late.commit("later", rebase_with=BasicConflictSolver())


def use_a_branch_of_its_own(repository: Repository, i: int) -> None:
    repository.create_branch(f"branch-{i}", repository.lookup_branch("main"))
    put(repository, i, f"branch-{i}")


def open_anew(repository: Repository, i: int) -> None:
    put(Repository.open(repository.storage), i)


ACTS: dict[str, tuple[Act, bool]] = {
    "new sessions": (put, False),
    "readers that follow": (put_and_read, False),
    "readers that follow on an object store": (put_and_read, True),
    "appends": (append, False),
    "amendments": (amend, False),
    "lost races": (lose_a_race, True),
    "branches": (use_a_branch_of_its_own, False),
    "repositories opened anew": (open_anew, False),
}
OF_THE_REPOSITORY = {"PageRef", "BranchRow", "Origin"}
"""What the repository itself has more of: a page for 64 records, 4,096 of them in one; a row for each branch."""

REMEMBERED = {"ArrayInfo", "ArrayLayout", "ChunkCodec", "Dimension"}
"""Of the last 1,024, 512, 512 and 512 small metadata documents that were looked at."""


def held(repository: Repository) -> Counter[str]:
    """Count objects of this package by type."""
    run(repository.context.idle())
    cells._decoded.cache_clear()  # like the next one bounded by its number, and filled by whichever test runs first
    layout._cached.cache_clear()
    gc.collect()
    kinds = (type(item) for item in gc.get_objects())
    ours = (kind.__name__ for kind in kinds if str(kind.__module__).startswith("arraystore."))
    return Counter(name for name in ours if name not in OF_THE_REPOSITORY | REMEMBERED)


@pytest.mark.parametrize("name", ACTS)
def test_a_process_that_goes_on_committing_holds_no_more_than_before(name: str) -> None:
    act, distant = ACTS[name]
    storage = in_memory_storage()
    repository = new_repository(DistantStorage(storage) if distant else storage)
    for i in range(CYCLE):
        act(repository, i)
    before = held(repository)
    for i in range(CYCLE, 3 * CYCLE):
        act(repository, i)
    grown = held(repository) - before
    assert {kind: count for kind, count in grown.items() if count > CYCLE // 2} == {}, "per type, in 128 commits"


def layers_of_one_chunk(count: int) -> list[tuple[Layer, bytes]]:
    made = []
    for i in range(count):
        box = Box((i,), (i + 1,))
        column = np.zeros(1, dtype=np.int64)
        manifest = Manifest(box, None, column, column, column + 100, packs=i.to_bytes(12, "big"))
        made.append((Layer(i.to_bytes(12, "big"), box, 1), encode_manifest(manifest)))
    return made


def traced(work: Callable[[], None]) -> int:
    """Return how many bytes are held after some work that were not held before."""
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_the_manifest_cache_takes_no_more_than_its_room_however_small_manifests_are() -> None:
    room = 256 * KiB
    storage = MemoryStorage()
    layers = layers_of_one_chunk(1000)
    for layer, encoded in layers:
        storage.put_sync(layer.key, bind_object(layer.key, encoded))
    cache = ManifestCache(storage, bytes(12), room)

    def use() -> None:
        for layer, _ in layers:
            manifest = cache.load_sync(layer)
            assert manifest.find(layer.box.low) == 0
            assert len(manifest.pack_keys) == len(manifest.extents) == 1
            assert not manifest.has_deletions

    assert 0 < traced(use) <= room


def test_the_block_cache_takes_no_more_than_its_room_however_small_chunks_are() -> None:
    room = 256 * KiB
    storage = MemoryStorage()
    keys = [f"chunks/{i:020}" for i in range(500)]
    for key in keys:
        storage.put_sync(key, bytes(100))
    cache = BlockCache(storage, room)

    def use() -> None:
        for key in keys:
            assert cache.read_sync(key, 0, 100, 100) == bytes(100)

    assert 0 < traced(use) <= room


def test_what_is_kept_by_record_is_bounded_by_count_and_by_bytes() -> None:
    kept: RecordCache[str] = RecordCache({}, most=3, room=100)
    for number in range(5):
        kept.put(number, f"value {number}", 10)
    assert [number for number in range(5) if number in kept] == [2, 3, 4]
    kept.put(5, "large", 85)
    assert [number for number in range(6) if number in kept] == [4, 5]
    kept.put(6, "larger than all there is", 1000)
    assert len(kept) == 1
    assert kept.get(6) == "larger than all there is"
    kept.put(6, "again", 7)
    assert (kept.get(6), kept.bytes) == ("again", 7)
    kept.clear()
    assert (len(kept), kept.bytes, kept.get(6)) == (0, 0, None)


LONG_RUN = """
    import gc, sys, tracemalloc
    import numpy as np, zarr
    from zarr.core.buffer import cpu
    from arraystore import Repository
    from arraystore.storage import LocalStorage

    def taken():
        gc.collect()
        if tracemalloc.is_tracing():
            return tracemalloc.get_traced_memory()[0]
        with open("/proc/self/statm") as status:
            return int(status.read().split()[1]) * 4096

    if sys.argv[3] == "traced":
        tracemalloc.start()
    repository = Repository.create(LocalStorage(sys.argv[1], fsync=False))
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array("a", shape=(64,), chunks=(1,), dtype="f4", compressors=None)
    session.commit("array")
    for i in range(int(sys.argv[2])):
        session = repository.writable_session("main")
        session.store.set_sync(f"a/c/{i % 64}", cpu.Buffer.from_bytes(np.float32(i).tobytes()))
        session.commit("commit")
        if (i + 1) % (int(sys.argv[2]) // 10) == 0:
            repository.wait_for_maintenance()
            print(taken(), flush=True)
"""


def test_the_memory_of_twenty_thousand_commits_levels_off(
    long_run: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Resident memory in the long run; its noise hides a leak of a short one, which counts what was allocated."""
    commits, what = (20_000, "resident") if long_run else (1_200, "traced")
    place = str(tmp_path_factory.mktemp("repository"))
    command = [sys.executable, "-c", textwrap.dedent(LONG_RUN), place, str(commits), what]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    curve = [int(line) for line in output.split()]
    # today's cache of records is full after some 500 commits; then a commit may leave nothing behind
    assert (curve[-1] - curve[5]) / (0.4 * commits) < 200, f"{what} bytes after each tenth: {curve}"
