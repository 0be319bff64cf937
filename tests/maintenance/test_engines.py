"""Verification and compaction by workers: the same reports as with threads, and nothing done where workers err."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore as ars
from arraystore import Repository, RepositoryConfig, local_filesystem_storage
from arraystore._repository.scope import remote_readers
from arraystore.errors import FormatError, InvalidInputError
from tests.commit.support import keys
from tests.engines import RUBBISH, PickledEngine, many_tasks
from tests.maintenance import worlds
from tests.maintenance.verification.support import damage, flipped, missing, truncated

CONFIG = RepositoryConfig(inline_chunk_threshold_bytes=16, own_object_threshold_bytes=400, pack_target_bytes=600)
PREFIX = "file://"


@pytest.fixture(autouse=True)
def _many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    many_tasks(monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a repository whose chunks are inlined, packed, objects of their own, in shards, and virtual."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file.bin").write_bytes(np.arange(60, dtype="<i8").tobytes())
    repo = _opened(tmp_path, create=True)
    with repo.transaction("main", message="arrays") as store:
        group = zarr.open_group(store, mode="a")
        for name, chunk in (("small", 2), ("packed", 20), ("large", 100)):
            group.create_array(name, shape=(10 * chunk,), chunks=(chunk,), dtype="<i8", compressors=None)
            group[name][:] = np.arange(10 * chunk) + 1
        group.create_array("sharded", shape=(80,), chunks=(5,), shards=(20,), dtype="<i8")
        group["sharded"][:] = np.arange(80)
        group.create_array("virtual", shape=(60,), chunks=(10,), dtype="<i8", compressors=None)
        url = f"file://{tmp_path}/source/file.bin"
        store.set_virtual_refs_arr("virtual", (6,), [url] * 6, 80 * np.arange(6), [80] * 6)
    with repo.transaction("main", message="again") as store:
        zarr.open_array(store, path="packed")[40:] = 7
    return tmp_path


def _opened(place: Path, *, create: bool = False) -> Repository:
    storage = local_filesystem_storage(place / "repo", fsync=False)
    prefix = f"file://{place}/source/"
    source = local_filesystem_storage(place / "source")
    if create:
        return Repository.create(storage, CONFIG, authorize_virtual_chunk_access={prefix: source})
    return Repository.open(storage, CONFIG, authorize_virtual_chunk_access={prefix: source})


def _both(place: Path, engine: PickledEngine, sample: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    here = _opened(place).verify("chunks", sample=sample)
    there = _opened(place).verify("chunks", sample=sample, engine=engine)
    return here.to_dict(), there.to_dict()


def test_a_sound_repository_is_verified_by_workers_in_many_tasks(place: Path) -> None:
    engine = PickledEngine()
    here, there = _both(place, engine)
    assert there == here
    assert here["ok"]
    assert here["counts"]["chunks_read"] > 30
    assert len(engine.tasks) > 5
    assert set(engine.tasks) == {"verifying chunks"}


@pytest.mark.parametrize("how", [flipped, truncated, missing])
def test_workers_find_the_damage_that_threads_find(place: Path, how: Any) -> None:
    storage = local_filesystem_storage(place / "repo", fsync=False)
    for key in keys(storage, "chunks/")[::3]:
        damage(storage, key, how)
    here, there = _both(place, PickledEngine(attempts=2))
    assert there == here
    assert not here["ok"]
    assert any(finding["arrays"] and finding["snapshot_count"] for finding in here["findings"])


@pytest.mark.parametrize("content", [b"short", b"x" * 480, None])
def test_workers_find_what_became_of_sources(place: Path, content: bytes | None) -> None:
    source = place / "source" / "file.bin"
    source.unlink()
    if content is not None:
        source.write_bytes(content)
    here, there = _both(place, PickledEngine())
    assert there == here
    assert not here["ok"]


def test_sources_that_no_worker_may_read_are_told(place: Path) -> None:
    storage = local_filesystem_storage(place / "repo", fsync=False)
    here, there = (Repository.open(storage).verify("chunks", engine=each) for each in ("threads", PickledEngine()))
    assert there.to_dict() == here.to_dict()
    assert sum(there.unread.values()) == 6


def test_a_sample_is_read_by_workers(place: Path) -> None:
    engine = PickledEngine()
    report = _opened(place).verify("chunks", sample=7, engine=engine)
    assert report.counts["chunks_read"] == 7
    assert report.ok


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_findings_that_are_none_are_an_error(place: Path, rubbish: str) -> None:
    with pytest.raises(FormatError, match="result of a task"):
        _opened(place).verify("chunks", engine=PickledEngine(change=RUBBISH[rubbish]))


def test_an_engine_must_be_one(place: Path) -> None:
    with pytest.raises(InvalidInputError, match="'threads', 'spark', or an engine"):
        _opened(place).verify("chunks", engine="dask")  # type: ignore[arg-type]


def test_memory_cannot_be_opened_by_workers() -> None:
    repo = Repository.create(ars.in_memory_storage())
    with pytest.raises(InvalidInputError, match="workers of the test cannot access"):
        repo.compact(engine=PickledEngine())


# -- compaction -------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> worlds.World:
    """A repository with many small packs."""
    world = worlds.create(local_filesystem_storage(tmp_path / "world", fsync=False))
    for row in range(12):
        world.write_row(row)
    return world


def test_workers_compact_as_threads_do(world: worlds.World) -> None:
    copy = world.copy()
    here = copy.repository.compact()
    engine = PickledEngine(attempts=2)
    there = world.repository.compact(engine=engine)
    assert engine.tasks
    assert (there.packs_before, there.packs_rewritten, there.layers_after, there.chunks_copied) == (
        here.packs_before, here.packs_rewritten, here.layers_after, here.chunks_copied,
    )  # fmt: skip
    assert there.complete
    world.check()
    assert world.repository.verify("chunks").ok


def test_a_dry_run_uses_no_worker(world: worlds.World) -> None:
    engine = PickledEngine()
    assert world.repository.compact(dry_run=True, engine=engine) == world.repository.compact(dry_run=True)
    assert not engine.tasks


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_a_compaction_with_wrong_results_changes_nothing(world: worlds.World, rubbish: str) -> None:
    tip = world.repository.lookup_branch("main")
    with pytest.raises(FormatError, match="result of a task"):
        world.repository.compact(engine=PickledEngine(change=RUBBISH[rubbish]))
    assert world.repository.lookup_branch("main") == tip
    world.check()
    assert world.repository.verify("chunks").ok


def _of_existing_packs(world: worlds.World) -> Any:
    packs = [_id(key) for key in keys(world.storage, "chunks/")]
    return lambda result: [packs[: len(result[0])], *result[1:]]


def _id(key: str) -> bytes:
    from arraystore._format.ids import id_from_text

    return id_from_text(key.removeprefix("chunks/"))


def test_packs_that_were_there_before_are_not_taken_for_copies(world: worlds.World) -> None:
    with pytest.raises(FormatError, match="new packs"):
        world.repository.compact(engine=PickledEngine(change=_of_existing_packs(world)))
    world.check()


def test_copies_that_do_not_exist_are_not_named(world: worlds.World) -> None:
    def elsewhere(result: Any) -> Any:
        return [[pack[:-1] + bytes([pack[-1] ^ 1]) for pack in result[0]], *result[1:]]

    with pytest.raises(FormatError, match="packs"):
        world.repository.compact(engine=PickledEngine(change=elsewhere))
    world.check()


def test_a_killed_worker_ends_a_compaction_that_the_next_one_continues(world: worlds.World) -> None:
    with pytest.raises(RuntimeError, match="killed"):
        world.repository.compact(engine=PickledEngine(fail_at=0))
    world.check()
    assert world.repository.compact(engine=PickledEngine()).complete
    world.check()


def test_commits_during_a_compaction_are_kept(world: worlds.World) -> None:
    written: list[str] = []

    def commit(number: int) -> None:
        if not written:
            written.append(world.write_row(20))

    assert world.repository.compact(engine=PickledEngine(before=commit)).complete
    assert written
    world.check()


def test_damaged_packs_are_left_by_workers(world: worlds.World) -> None:
    for key in keys(world.storage, "chunks/")[2:4]:
        damage(world.storage, key, flipped)
    copy = world.copy()
    here, there = copy.repository.compact(), world.repository.compact(engine=PickledEngine())
    assert there.damaged == here.damaged
    assert len(there.damaged) == 2


def test_readers_of_workers_are_those_of_the_repository(place: Path) -> None:
    context = _opened(place)._context
    remote = remote_readers(context, PickledEngine())
    assert remote is not None
    assert remote.source is context
    assert remote_readers(context, "threads") is None
