"""Copies by workers: the same objects, keys and reports as by threads, whatever happens to workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from arraystore import Repository, RepositoryConfig, Storage, in_memory_storage, local_filesystem_storage
from arraystore._runtime import run
from arraystore.copying import clone_repository, copy_branch, export_zarr, import_zarr, materialize
from arraystore.copying.objects import ObjectCopier
from arraystore.copying.report import CopyCounter
from arraystore.copying.zarr_locations import open_target
from arraystore.errors import ConflictError, FormatError, InvalidInputError, MergeConflictError, RepositoryNotFoundError
from arraystore.storage.protocol import BytesLike, ObjectInfo
from arraystore.storage.wrapper import WrapperStorage
from tests.commit.support import delete, keys
from tests.copying.support import contents
from tests.copying.test_zarr import MAKERS, files
from tests.engines import RUBBISH, PickledEngine, many_tasks

T = TypeVar("T")
CONFIG = RepositoryConfig(inline_chunk_threshold_bytes=16, own_object_threshold_bytes=200, pack_target_bytes=400)


@pytest.fixture(autouse=True)
def _many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    many_tasks(monkeypatch)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """Arrays of every kind of chunk, a file, an array that shrank, and history."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "file.bin").write_bytes(np.arange(60, dtype="<i8").tobytes())
    prefix = f"file://{source}/"
    repo = Repository.create(
        place(tmp_path, "repo"), CONFIG, authorize_virtual_chunk_access={prefix: local_filesystem_storage(source)}
    )
    with repo.transaction("main", message="arrays") as store:
        group = zarr.open_group(store, mode="a")
        group.create_array("deep/er/sharded", data=np.arange(600).reshape(20, 30), chunks=(5, 5), shards=(10, 15))
        for name, chunk in (("small", 1), ("packed", 20), ("large", 50)):
            group.create_array(name, data=np.arange(10 * chunk) + 1, chunks=(chunk,), compressors=None)
        group.create_array("virtual", shape=(60,), chunks=(10,), dtype="<i8", compressors=None)
        store.set_virtual_refs_arr("virtual", (6,), [prefix + "file.bin"] * 6, 80 * np.arange(6), [80] * 6)
    session = repo.writable_session("main")
    session.hierarchy.set_sync("notes/read.me", memoryview(b"x" * 100))
    session.commit("a file")
    with repo.transaction("main", message="changes") as store:
        zarr.open_array(store, path="packed").resize((150,))
        del zarr.open_group(store, mode="a")["small"]
        zarr.open_array(store, path="large")[:50] = 0
    return repo


def place(directory: Path, name: str) -> Storage:
    return local_filesystem_storage(directory / name, fsync=False)


def objects(storage: Storage) -> dict[str, bytes]:
    return {key: bytes(storage.get_sync(key)) for key in keys(storage, "")}


def held(repo: Repository) -> dict[str, bytes]:
    return contents(repo.readonly_session("main"))


class _Flight(WrapperStorage):
    """Notes how many requests are in flight when another one starts, itself included."""

    def __init__(self, inner: Storage, flight: list[int], now: list[int]) -> None:
        super().__init__(inner)
        self.flight, self.now = flight, now

    async def _counted(self, request: Awaitable[T]) -> T:
        self.now[0] += 1
        self.flight.append(self.now[0])
        for _ in range(3 + len(self.flight) % 5):  # some take longer than others
            await asyncio.sleep(0)
        self.now[0] -= 1
        return await request

    async def get(self, key: str) -> BytesLike:
        return await self._counted(super().get(key))

    async def put(self, key: str, data: BytesLike) -> None:
        await self._counted(super().put(key, data))


def test_a_task_keeps_as_many_requests_in_flight_as_it_may() -> None:
    source, flight, now = in_memory_storage(), [], [0]
    objects = [ObjectInfo(f"chunks/{number:020X}", 10) for number in range(200)]
    for info in objects:
        source.put_sync(info.key, bytes(10))
    counter = CopyCounter()
    copier = ObjectCopier(_Flight(source, flight, now), _Flight(in_memory_storage(), flight, now), counter)
    run(copier.copy(objects, checked=False))
    assert (counter.objects, max(flight)) == (200, 16)
    assert np.mean(flight[16:-16]) > 12


# -- clones -----------------------------------------------------------------------------------------------------


def test_a_clone_by_workers_is_that_of_threads(repo: Repository, tmp_path: Path) -> None:
    here, there = place(tmp_path, "here"), place(tmp_path, "there")
    engine = PickledEngine(attempts=2)
    one, other = clone_repository(repo.storage, here), clone_repository(repo.storage, there, engine=engine)
    assert objects(there) == objects(here)
    assert replace(other, requests=0) == replace(one, requests=0)
    assert {*engine.tasks} == {"copying chunks", "copying metadata"}


def test_two_drivers_that_clone_at_the_same_time_make_one_clone(repo: Repository, tmp_path: Path) -> None:
    target, both = place(tmp_path, "target"), Barrier(2, timeout=60)

    def meet(number: int) -> None:
        if number == 0:
            both.wait()

    def clone(_: int) -> int:
        return clone_repository(repo.storage, target, engine=PickledEngine(before=meet)).objects

    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(clone, range(2)))
    expected = place(tmp_path, "expected")
    clone_repository(repo.storage, expected)
    assert objects(target) == objects(expected)
    assert min(counts) > 0
    assert Repository.open(target).verify("chunks").ok


def test_of_two_imports_at_the_same_time_one_is_there_in_the_end(tmp_path: Path) -> None:
    MAKERS["v3"](str(tmp_path / "plain"))
    repo, both = Repository.create(place(tmp_path, "repo")), Barrier(2, timeout=60)

    def meet(number: int) -> None:
        if number == 0:
            both.wait()

    def bring(_: int) -> bool:
        try:
            import_zarr(tmp_path / "plain", repo, group="g", engine=PickledEngine(before=meet))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(bring, range(2))) == [False, True]
    assert len(list(repo.ancestry(branch="main"))) == 2
    assert len([key for key in held(repo) if key.startswith("g/a/c/")]) == 12
    assert repo.verify("chunks").ok


def test_a_clone_is_resumed_where_a_worker_was_killed(repo: Repository, tmp_path: Path) -> None:
    there = place(tmp_path, "there")
    with pytest.raises(RuntimeError, match="killed"):
        clone_repository(repo.storage, there, engine=PickledEngine(fail_at=3))
    with pytest.raises(RepositoryNotFoundError):
        Repository.open(there)
    left = set(keys(there, "chunks/"))
    assert left
    report = clone_repository(repo.storage, there, engine=PickledEngine())
    assert report.skipped == len(left)
    assert objects(there) == objects(repo.storage)


def test_what_is_deleted_at_the_source_meanwhile_is_told(repo: Repository, tmp_path: Path) -> None:
    stray = "chunks/000000000000000000000001"
    repo.storage.put_sync(stray, b"of nobody")

    def collected(number: int) -> None:
        if number == 0:
            delete(repo.storage, stray)

    report = clone_repository(repo.storage, place(tmp_path, "there"), engine=PickledEngine(before=collected))
    assert [item.key for item in report.left_out] == [stray]


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_a_clone_with_wrong_results_cannot_be_opened(repo: Repository, tmp_path: Path, rubbish: str) -> None:
    there = place(tmp_path, "there")
    with pytest.raises(FormatError, match="result of a task"):
        clone_repository(repo.storage, there, engine=PickledEngine(change=RUBBISH[rubbish]))
    with pytest.raises(RepositoryNotFoundError):
        Repository.open(there)


def test_workers_that_only_say_that_they_copied_are_found_out(repo: Repository, tmp_path: Path) -> None:
    there = place(tmp_path, "there")
    for _ in range(2):
        with pytest.raises(Exception, match="incomplete"):
            clone_repository(repo.storage, there, engine=Idle())
        with pytest.raises(RepositoryNotFoundError):
            Repository.open(there)


class Idle(PickledEngine):
    """Reports all objects as copied."""

    async def run(self, work: Any, tasks: Any, description: str) -> Any:  # type: ignore[override]
        async for task in tasks:
            yield ((len(task), sum(size for _, size in task), 0, ()), 0)


# -- branches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [False, True])
def test_a_branch_is_copied_by_workers_as_by_threads(repo: Repository, tmp_path: Path, history: bool) -> None:
    copies = []
    for name, engine in (("here", "threads"), ("there", PickledEngine(attempts=2))):
        target = Repository.create(place(tmp_path, name), CONFIG)
        report = copy_branch(repo, target, branch="main", history=history, engine=engine)  # type: ignore[arg-type]
        copies.append((replace(report, snapshot_id=""), len(list(target.ancestry(branch="main"))), _native(target)))
    assert copies[0] == copies[1]


def _native(repo: Repository) -> dict[str, bytes]:
    """Return what a copy holds that it can read: all but virtual chunks."""
    with repo.transaction("main", message="without") as store:
        del zarr.open_group(store, mode="a")["virtual"]
    return held(repo)


# -- plain Zarr -------------------------------------------------------------------------------------------------


def test_an_export_by_workers_has_the_same_keys_and_bytes(repo: Repository, tmp_path: Path) -> None:
    one = export_zarr(repo, tmp_path / "here", branch="main")
    engine = PickledEngine(attempts=2)
    other = export_zarr(repo, tmp_path / "there", branch="main", engine=engine)
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert other == one
    assert len(engine.tasks) > 5


def test_a_file_is_never_seen_in_part(repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_zarr(repo, tmp_path / "plain", branch="main")
    before = files(tmp_path / "plain")
    write = Path.write_bytes

    def killed(path: Path, data: bytes) -> int:
        write(path, data[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", killed)
    location = open_target(str(tmp_path / "plain"), atomic=True)
    with pytest.raises(KeyboardInterrupt):
        location._write([("packed/c/0", b"other")])  # type: ignore[attr-defined]
    assert files(tmp_path / "plain") == before


def test_an_export_is_resumed_where_a_worker_was_killed(repo: Repository, tmp_path: Path) -> None:
    export_zarr(repo, tmp_path / "here", branch="main")
    with pytest.raises(RuntimeError, match="killed"):
        export_zarr(repo, tmp_path / "there", branch="main", engine=PickledEngine(fail_at=4))
    assert not (tmp_path / "there" / "zarr.json").exists()
    report = export_zarr(repo, tmp_path / "there", branch="main", engine=PickledEngine())
    assert report.skipped
    assert files(tmp_path / "there") == files(tmp_path / "here")


@pytest.mark.parametrize("version", MAKERS)
def test_an_import_by_workers_is_one_commit_of_the_same(tmp_path: Path, version: str) -> None:
    MAKERS[version](str(tmp_path / "plain"))
    one, other = (Repository.create(place(tmp_path, name)) for name in ("here", "there"))
    here = import_zarr(tmp_path / "plain", one, group="g")
    there = import_zarr(tmp_path / "plain", other, group="g", engine=PickledEngine(attempts=2))
    assert held(other) == held(one)
    assert replace(there, snapshot_id="") == replace(here, snapshot_id="")
    assert len(list(other.ancestry(branch="main"))) == 2


def test_commits_during_an_import_are_kept(tmp_path: Path) -> None:
    MAKERS["v3"](str(tmp_path / "plain"))
    repo = Repository.create(place(tmp_path, "repo"))
    with repo.transaction("main", message="root") as store:
        zarr.create_group(store)

    def commit(number: int) -> None:
        if number == 1:
            with repo.transaction("main", message="rival") as store:
                zarr.create_array(store, name="other", data=np.arange(3))

    from arraystore import ConflictDetector

    engine = PickledEngine(before=commit)
    import_zarr(tmp_path / "plain", repo, group="g", engine=engine, rebase_with=ConflictDetector())
    assert [each.message for each in repo.ancestry(branch="main")][1] == "rival"
    assert len([key for key in held(repo) if key.startswith("g/a/c/")]) == 12


Change = Callable[[Any], Any]
WRITERS: dict[str, Change] = {**RUBBISH, "change set": lambda result: [b"rubbish", result[1]]}


@pytest.mark.parametrize("rubbish", WRITERS)
def test_nothing_is_committed_where_workers_return_rubbish(repo: Repository, tmp_path: Path, rubbish: str) -> None:
    MAKERS["v3"](str(tmp_path / "plain"))
    tip = repo.lookup_branch("main")
    engine = PickledEngine(change=WRITERS[rubbish])
    with pytest.raises((FormatError, MergeConflictError)):
        import_zarr(tmp_path / "plain", repo, group="g", engine=engine)
    with pytest.raises((FormatError, MergeConflictError)):
        materialize(repo, engine=engine)
    assert repo.lookup_branch("main") == tip


def test_places_in_memory_are_refused_before_anything_is_written(repo: Repository, tmp_path: Path) -> None:
    for target in (MemoryStore(), zarr.create_group(MemoryStore())):
        with pytest.raises(InvalidInputError, match="workers of the test cannot access"):
            export_zarr(repo, target, branch="main", engine=PickledEngine())
        with pytest.raises(InvalidInputError, match="workers of the test cannot access"):
            import_zarr(target, repo, engine=PickledEngine())


# -- virtual chunks ---------------------------------------------------------------------------------------------


def test_virtual_chunks_are_copied_by_workers_in_batches(repo: Repository) -> None:
    before = held(repo)
    engine = PickledEngine(attempts=2)
    report = materialize(repo, batch_bytes=250, engine=engine)
    assert (report.commits, report.chunks, report.bytes) == (2, 6, 480)
    assert held(Repository.open(repo.storage)) == before


def test_a_batch_that_loses_its_worker_is_not_committed(repo: Repository) -> None:
    tip = repo.lookup_branch("main")
    with pytest.raises(RuntimeError, match="killed"):
        materialize(repo, engine=PickledEngine(fail_at=1))
    assert repo.lookup_branch("main") == tip
    assert materialize(repo, engine=PickledEngine()).chunks == 6
