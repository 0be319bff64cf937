"""Programs that were written for Icechunk, with one import changed."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype

import arraystore
import arraystore.compat.icechunk as icechunk  # noqa: PLR0402 - as the docs say
from arraystore._chunks.reader import ChunkReader
from arraystore._session import pickling
from arraystore.compat.icechunk.xarray import to_icechunk
from tests.s3server import S3Server

ACCOUNTS = 8


@pytest.fixture
def repo() -> icechunk.Repository:
    return icechunk.Repository.create(icechunk.in_memory_storage())


def on_directory(path: Path, server: S3Server) -> icechunk.Storage:
    return icechunk.local_filesystem_storage(str(path))


def on_s3(path: Path, server: S3Server) -> icechunk.Storage:
    return icechunk.s3_storage(
        bucket=server.new_bucket(),
        prefix="bank",
        endpoint_url=server.endpoint_url,
        allow_http=True,
        region=server.region,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
    )


@pytest.mark.parametrize("place", [on_directory, on_s3])
def test_the_bank_loses_nothing(
    place: Callable[[Path, S3Server], icechunk.Storage], tmp_path: Path, s3_server: S3Server
) -> None:
    repo = icechunk.Repository.create(place(tmp_path, s3_server))
    with repo.transaction("main", message="open") as store:
        zarr.create_array(store, name="balance", shape=ACCOUNTS, chunks=1, dtype="i8")[:] = 100
    committed: list[str] = []

    def clerk(number: int) -> None:
        luck = random.Random(number)
        for _ in range(4):
            transfer(repo, luck, committed)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(clerk, range(3)))
    balance = zarr.open_group(repo.readonly_session("main").store, mode="r")["balance"]
    assert np.sum(np.asarray(balance[:])) == 100 * ACCOUNTS  # type: ignore[index]
    assert {info.id for info in repo.ancestry(branch="main")} >= set(committed)
    assert len(committed) == 12


def transfer(repo: icechunk.Repository, luck: random.Random, committed: list[str]) -> None:
    source, target = luck.sample(range(ACCOUNTS), 2)
    while True:
        session = repo.writable_session("main")
        balance: Any = zarr.open_group(session.store, mode="r+")["balance"]
        balance[source] = balance[source] - 1
        balance[target] = balance[target] + 1
        try:
            committed.append(session.commit("transfer", rebase_with=icechunk.ConflictDetector()))
            return
        except icechunk.ConflictError:
            continue


def test_a_written_fork_comes_back_from_a_worker(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
    fork = pickle.loads(pickle.dumps(session.fork()))
    zarr.open_array(fork.store, path="a")[:2] = 7
    session.merge(pickle.loads(pickle.dumps(fork)))
    session.commit("both")
    assert zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:].tolist() == [7, 7, 0, 0]


def test_a_writable_session_is_not_pickled(repo: icechunk.Repository) -> None:
    with pytest.raises(ValueError, match="opt-in"):
        pickle.dumps(repo.writable_session("main"))


def test_configuration_is_saved_as_it_was(repo: icechunk.Repository) -> None:
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=7)
    config.compression = icechunk.CompressionConfig(level=2)
    config.manifest = icechunk.ManifestConfig(
        splitting=icechunk.ManifestSplittingConfig.from_dict(
            {icechunk.ManifestSplitCondition.AnyArray(): {icechunk.ManifestSplitDimCondition.Axis(0): 3}}
        )
    )
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer("s3://data/", icechunk.s3_store(region="eu")))
    repo.reopen(config).save_config()
    assert icechunk.Repository.fetch_config(repo.storage) == config
    assert icechunk.Repository.open(repo.storage).config == config


def test_a_rebased_commit_says_so(repo: icechunk.Repository) -> None:
    with repo.transaction("main", message="root") as store:
        zarr.create_group(store)
    mine, theirs = repo.writable_session("main"), repo.writable_session("main")
    zarr.create_group(theirs.store, path="theirs")
    theirs.commit("theirs")
    zarr.create_group(mine.store, path="mine")
    snapshot = mine.commit("mine", {"who": "me"}, rebase_with=icechunk.ConflictDetector())
    assert repo.lookup_snapshot(snapshot).metadata == {"who": "me", "__icechunk": {"rebase_attempts": 1}}


class Raced(arraystore.storage.MemoryStorage):
    """Storage in which others commit before each of the first commits of `main`."""

    def __init__(self) -> None:
        super().__init__()
        self.rivals: list[Callable[[], Coroutine[Any, Any, object]]] = []
        self._raced = False

    async def put_new(self, key: str, data: Any) -> bool:
        if self.rivals and not self._raced and "/main/" in key:
            self._raced = True
            await self.rivals.pop()()
            self._raced = False
        return await super().put_new(key, data)


@pytest.mark.parametrize("rivals", [0, 3])
@pytest.mark.parametrize("length", [1, 10_000])
def test_the_metadata_of_a_commit_has_the_number_of_its_rebases(rivals: int, length: int) -> None:
    storage: Any = Raced()
    other = arraystore.Repository.create(storage)
    with other.transaction("main", message="root") as store:
        zarr.create_group(store)

    async def rival() -> None:
        session = await other.writable_session_async("main")
        await session.commit_async("by somebody else", allow_empty=True)

    session = icechunk.Repository.open(storage).writable_session("main")
    zarr.create_group(session.store, path="mine")
    storage.rivals = [rival] * rivals
    message = "m" * length
    tip = session.commit(message, {"who": "me"}, rebase_with=icechunk.ConflictDetector())
    info = icechunk.Repository.open(storage).lookup_snapshot(tip)
    assert info.message == message
    assert info.metadata == {"who": "me", "__icechunk": {"rebase_attempts": rivals}}


def test_a_store_of_a_fork_is_the_same_fork_here_and_one_of_its_own_elsewhere(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
    fork = session.fork()
    sent = pickle.dumps(zarr.open_array(fork.store, path="a"))
    pickle.loads(sent)[:2] = 7
    assert zarr.open_array(fork.store, path="a", mode="r")[:].tolist() == [7, 7, 0, 0]
    with mock.patch.object(pickling, "_live", {}):  # as in another process
        array = pickle.loads(sent)
        array[2:] = 8
    session.merge(fork, array.store.session)
    session.commit("both")
    assert zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:].tolist() == [7, 7, 8, 8]


def test_a_session_of_memory_of_another_process_is_unpickled_and_fails_when_it_is_used(
    repo: icechunk.Repository,
) -> None:
    for thing in (repo, repo.readonly_session("main").store, repo.writable_session("main").fork()):
        sent = pickle.dumps(thing)
        with (
            mock.patch.object(os, "getpid", return_value=-1),
            mock.patch.object(pickling, "_live", {}),
            mock.patch.object(pickling, "_states", {}),
        ):
            arrived = pickle.loads(sent)
        repr(arrived)
        with pytest.raises(icechunk.StorageError, match="use local_filesystem_storage"):
            zarr.open_group(arrived, mode="r") if isinstance(arrived, icechunk.IcechunkStore) else arrived.status()


def test_a_diff_has_every_node_that_moved(repo: icechunk.Repository) -> None:
    with repo.transaction("main", message="nodes") as store:
        zarr.create_group(store, path="old/inner")
        zarr.create_array(store, name="old/inner/a", shape=2, chunks=1, dtype="i4")
    before = repo.lookup_branch("main")
    session = repo.rearrange_session("main")
    session.move("/old", "/new")
    moved = [("/old", "/new"), ("/old/inner", "/new/inner"), ("/old/inner/a", "/new/inner/a")]
    assert session.status().moved_nodes == moved
    after = session.commit("moved")
    assert repo.diff(from_snapshot_id=before, to_snapshot_id=after).moved_nodes == moved
    rows = repo.inspect_transaction_log(after)["moved_nodes"]
    assert rows == [{"from": old, "to": new} for old, new in moved]


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("/", "/b", icechunk.ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT),
        ("/g", "/g/h", icechunk.ErrorKind.MOVE_INTO_SELF_OR_DESCENDANT),
        ("/g", "/a", icechunk.ErrorKind.MOVE_WONT_OVERWRITE),
        ("/g", "/", icechunk.ErrorKind.MOVE_WONT_OVERWRITE),
        ("/g", "/x/g", icechunk.ErrorKind.MOVE_DESTINATION_PARENT_MISSING),
        ("/g", "/a/g", icechunk.ErrorKind.MOVE_DESTINATION_PARENT_NOT_GROUP),
        ("/x", "/y", icechunk.ErrorKind.NODE_NOT_FOUND),
    ],
)
def test_moves_are_refused_with_the_kinds_of_icechunk(
    repo: icechunk.Repository, source: str, target: str, kind: icechunk.ErrorKind
) -> None:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="g")
    zarr.create_array(session.store, name="a", shape=2, chunks=1, dtype="i4")
    with pytest.raises(icechunk.IcechunkError) as refused:
        session.move(source, target)
    assert refused.value.kind == kind


def test_dask_arrays_are_written_into_a_fork_a_block_at_a_time(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    fork = session.fork()
    asked: list[int] = []

    def block(values: Any) -> Any:
        asked.append(values.nbytes)
        return values

    source = da.arange(64, chunks=4, dtype="i8").map_blocks(block, dtype="i8", meta=np.empty(0, "i8"))
    to_icechunk(xr.Dataset({"v": ("x", source)}), fork)
    assert max(asked) == 32
    np.testing.assert_array_equal(zarr.open_array(fork.store, path="v", mode="r")[:], np.arange(64))
    session.merge(fork)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("a dataset")


@pytest.mark.parametrize("solver", [icechunk.ConflictDetector(), icechunk.BasicConflictSolver()])
def test_the_second_of_two_appends_is_a_conflict(repo: icechunk.Repository, solver: icechunk.ConflictSolver) -> None:
    def day(number: int) -> xr.Dataset:
        return xr.Dataset({"rain": ("time", [float(number)])}, coords={"time": [number]})

    encoding = {name: {"chunks": (1,)} for name in ("rain", "time")}
    with repo.transaction("main", message="the first day") as store:
        to_icechunk(day(0), store.session, encoding=encoding)
    first, again = repo.writable_session("main"), repo.writable_session("main")
    for session in (first, again):
        to_icechunk(day(1), session, append_dim="time")
    first.commit("the second day")
    with pytest.raises(icechunk.RebaseFailedError):
        again.commit("the second day, again", rebase_with=solver)
    assert zarr.open_array(repo.readonly_session("main").store, path="time", mode="r")[:].tolist() == [0, 1]


def forks_of(session: icechunk.Session, *values: int) -> list[icechunk.ForkSession]:
    """Return forks that write all of an array `a` of two chunks: ones, and a value of its own in the last item."""
    forks = [session.fork() for _ in values]
    for fork, value in zip(forks, values, strict=True):
        zarr.open_array(fork.store, path="a", mode="r+")[:] = [1, 1, 1, value]
    return forks


def test_forks_that_wrote_the_same_bytes_are_merged(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
    with pytest.raises(arraystore.MergeConflictError):
        session.merge(*forks_of(session, 2, 3))
    session.discard_changes()
    array = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
    session.merge(*forks_of(session, 2, 2, 2))
    assert array[:].tolist() == [1, 1, 1, 2]
    session.merge(session)


@pytest.mark.parametrize("layout", [{"chunks": 4096}, {"chunks": 2048, "shards": 4096}], ids=["chunks", "shards"])
def test_forks_that_wrote_the_same_values_at_different_levels_of_zstd_are_merged(
    repo: icechunk.Repository, layout: dict[str, int]
) -> None:
    values = np.random.default_rng(1).normal(280, 0.5, 7 * 4096).astype("f4")
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=values.shape, dtype="f4", **layout)

    def forks_with(*contents: Any) -> list[icechunk.ForkSession]:
        forks = [session.fork() for _ in contents]
        for fork, each in zip(forks, contents, strict=True):
            zarr.open_array(fork.store, path="a", mode="r+")[:] = each
        return forks

    def frame(fork: icechunk.ForkSession) -> bytes:
        data = asyncio.run(fork.store.get("a/c/1", default_buffer_prototype()))
        assert data is not None
        return data.to_bytes()

    first, second = forks_with(values, values)  # the second one has written enough for a sample
    assert frame(first) != frame(second)
    with pytest.raises(arraystore.MergeConflictError):
        session.merge(first, *forks_with(np.where(values == values[-1], 0, values)))
    for undecodable in (b"no frame", frame(second)[:-1], bytes(20_000)):
        asyncio.run(second.store.set("a/c/1", default_buffer_prototype().buffer.from_bytes(undecodable)))
        with pytest.raises(arraystore.MergeConflictError):
            session.merge(first, second)
    session.merge(first, *forks_with(values))
    assert np.array_equal(array[:], values)


def test_reindexing_forward_leaves_old_chunks_and_backward_none(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=3, chunks=1, dtype="i4", fill_value=-1)
    array[:] = [1, 2, 3]

    def forward(index: Any) -> Any:
        return [index[0] - 1] if index[0] else None

    session.reindex_array("a", forward)
    assert array[:].tolist() == [2, 3, 3]
    session.reindex_array("a", forward, lambda index: [index[0] + 1])
    assert array[:].tolist() == [3, 3, -1]


def test_writing_a_chunk_that_was_reindexed_leaves_the_one_that_stayed(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=3000, chunks=1000, dtype="u1", compressors=None)
    for number in range(2):
        array[1000 * number : 1000 * (number + 1)] = number + 1
    session.reindex_array("a", lambda index: [2] if index[0] == 1 else None)
    array[2000:] = 9
    assert array[::1000].tolist() == [1, 2, 9]


def test_what_does_not_exist_has_no_ancestry(repo: icechunk.Repository) -> None:
    with pytest.raises(icechunk.RefNotFoundError):
        repo.ancestry(branch="nowhere")


@pytest.mark.parametrize("headers", [{"a name": "v"}, {"name": "line\nbreak"}])
def test_headers_are_checked_when_a_storage_is_made(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="invalid HTTP header"):
        icechunk.s3_storage(bucket="data", prefix="p", region="eu", from_env=True, headers=headers)


@dataclass(frozen=True)
class Granting:
    """Credentials for a server, and a file with a letter for each time that somebody asked for them."""

    server: S3Server
    asked: Path

    def __call__(self) -> icechunk.S3StaticCredentials:
        with self.asked.open("a") as file:
            file.write(".")
        return icechunk.S3StaticCredentials(self.server.access_key_id, self.server.secret_access_key)


@pytest.mark.parametrize(("scattered", "times"), [(False, 3), (True, 1)])
def test_each_storage_and_each_copy_of_one_asks_for_its_own_credentials_unless_they_are_scattered(
    s3_server: S3Server, tmp_path: Path, scattered: bool, times: int
) -> None:
    granting = Granting(s3_server, tmp_path / "asked")
    credentials = icechunk.s3_refreshable_credentials(granting, scatter_initial_credentials=scattered)
    bucket = s3_server.new_bucket()

    def storage() -> icechunk.Storage:
        place = {"region": s3_server.region, "endpoint_url": s3_server.endpoint_url, "allow_http": True}
        options = icechunk.S3Options(**place, force_path_style=True)
        return icechunk.Storage.new_s3(options, bucket, "people", credentials)

    repo = icechunk.Repository.create(storage())
    icechunk.Repository.open(storage()).create_branch("b", repo.lookup_branch("main"))

    copy: icechunk.Repository = pickle.loads(pickle.dumps(repo))

    assert copy.list_branches() == {"main", "b"}
    assert copy.list_branches() == {"main", "b"}
    assert (tmp_path / "asked").read_text() == "." * times


def test_errors_have_the_kinds_of_icechunk(repo: icechunk.Repository) -> None:
    with pytest.raises(icechunk.RefNotFoundError) as missing:
        repo.lookup_branch("nowhere")
    assert missing.value.kind == icechunk.ErrorKind.REF_NOT_FOUND
    with pytest.raises(icechunk.SessionStateError, match="no changes made") as nothing:
        repo.writable_session("main").commit("nothing")
    assert nothing.value.kind == icechunk.ErrorKind.NO_CHANGES_TO_COMMIT
    tip = repo.writable_session("main").commit("more", allow_empty=True)
    with pytest.raises(icechunk.ConflictError, match="branch update conflict") as moved:
        repo.reset_branch("main", tip, from_snapshot_id="1CECHNKREP0F1RSTCMT0")
    assert pickle.loads(pickle.dumps(moved.value)).kind == icechunk.ErrorKind.BRANCH_UPDATE_CONFLICT


def test_what_was_reset_or_deleted_tells_where_it_was(repo: icechunk.Repository) -> None:
    first = repo.lookup_branch("main")
    one, two = [repo.writable_session("main").commit(name, allow_empty=True) for name in ("one", "two")]
    repo.create_tag("t", one)
    repo.create_branch("b", one)
    three = repo.writable_session("b").commit("three", allow_empty=True)
    repo.reset_branch("main", first)
    repo.reset_branch("main", two)
    repo.delete_branch("b")
    repo.delete_tag("t")
    repo.create_branch("at-first", first)
    repo.delete_branch("at-first")
    kinds = [update.kind for update in repo.ops_log()]
    before = [kind.previous_snap_id for kind in kinds if hasattr(kind, "previous_snap_id")]
    assert before == [first, one, three, first, two]
    assert [type(kind).__name__ for kind in kinds][-3:] == ["NewCommit", "NewCommit", "RepoInitialized"]


def test_flags_have_the_numbers_of_icechunk(repo: icechunk.Repository) -> None:
    numbers = {flag.name: flag.id for flag in repo.feature_flags()}
    assert (numbers["move_node"], numbers["create_tag"], numbers["delete_tag"]) == (3, 4, 5)
    assert len(set(numbers.values())) == len(numbers)
    repo.set_feature_flag("create_tag", False)
    assert next(repo.ops_log()).kind == icechunk.UpdateType.FeatureFlagChanged(4, False)


def test_only_what_was_saved_is_a_saved_configuration(repo: icechunk.Repository) -> None:
    assert icechunk.Repository.fetch_config(repo.storage) is None
    repo.save_config()
    assert icechunk.Repository.fetch_config(repo.storage) == icechunk.RepositoryConfig()


def test_only_chunks_that_both_wrote_are_conflicted_chunks(repo: icechunk.Repository) -> None:
    with repo.transaction("main", message="root") as store:
        zarr.create_array(store, name="a", shape=4, chunks=2, dtype="i4")[:] = 1
    mine, deleting = repo.writable_session("main"), repo.writable_session("main")
    zarr.open_array(mine.store, path="a")[2:] = 2
    zarr.open_group(deleting.store, mode="r+").__delitem__("a")
    with repo.transaction("main", message="theirs") as store:
        zarr.open_array(store, path="a")[2:] = 3
    shapes: list[Any] = []
    for session in (mine, deleting):
        with pytest.raises(icechunk.RebaseFailedError) as failed:
            session.rebase(icechunk.ConflictDetector())
        shapes += [conflict.conflicted_chunks for conflict in failed.value.conflicts]
    assert shapes == [[[1]], None]


def test_metadata_and_chunks_that_both_changed_are_three_conflicts(repo: icechunk.Repository) -> None:
    with repo.transaction("main", message="root") as store:
        for name in ("a", "b"):
            zarr.create_array(store, name=name, shape=4, chunks=2, dtype="i4")
    mine, theirs = repo.writable_session("main"), repo.writable_session("main")
    for value, session in enumerate((mine, theirs)):
        for name in ("a", "b"):
            array = zarr.open_array(session.store, path=name)
            array[:] = value
            array.attrs["value"] = value
    theirs.commit("theirs")
    with pytest.raises(icechunk.RebaseFailedError) as failed:
        mine.commit("mine", rebase_with=icechunk.ConflictDetector())
    kinds = [(conflict.conflict_type.name, conflict.path) for conflict in failed.value.conflicts]
    three = ("ZarrMetadataDoubleUpdate", "ChunksUpdatedInUpdatedArray", "ChunkDoubleUpdate")
    for path in ("/a", "/b"):
        assert [kind for kind, where in kinds if where == path] == list(three)
    assert len(kinds) == 6
    assert len(pickle.loads(pickle.dumps(failed.value)).conflicts) == 6


def test_the_first_snapshot_has_the_id_of_icechunks(repo: icechunk.Repository) -> None:
    first = repo.lookup_branch("main")
    assert first == "1CECHNKREP0F1RSTCMT0" == repo.writable_session("main").snapshot_id
    assert repo.lookup_snapshot(first).metadata == {"__icechunk": {"is_root": True}}
    repo.writable_session("main").commit("second", allow_empty=True)
    assert [info.parent_id for info in repo.ancestry(branch="main")] == [first, None]
    assert repo.readonly_session(snapshot_id=first).snapshot_id == first
    repo.reset_branch("main", first)
    assert repo.lookup_branch("main") == first


def test_what_is_stored_is_a_repository_of_arraystore(tmp_path: Path) -> None:
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    with repo.transaction("main", message="by the other name") as store:
        zarr.create_array(store, name="a", data=np.arange(3))
    ours = arraystore.Repository.open(arraystore.local_filesystem_storage(tmp_path))
    assert ours.readonly_session("main").read("a").tolist() == [0, 1, 2]


def test_virtual_chunks_are_read_from_an_authorized_container(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(8)))
    prefix = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(tmp_path)))
    )
    access = icechunk.containers_credentials({prefix: icechunk.credentials.LocalFileSystemAccess})
    repo = icechunk.Repository.create(icechunk.in_memory_storage(), config, authorize_virtual_chunk_access=access)
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="u1", compressors=None)
    refused = session.store.set_virtual_refs(
        "a",
        [
            icechunk.VirtualChunkSpec([0], prefix + "data", 2, 2),  # type: ignore[arg-type]
            icechunk.VirtualChunkSpec([1], "file:///elsewhere/data", 0, 2),  # type: ignore[arg-type]
        ],
    )
    assert refused == [(1,)]
    assert array[:].tolist() == [2, 3, 0, 0]
    assert session.chunk_type("a", [0]) == icechunk.ChunkType.virtual
    assert session.all_virtual_chunk_locations() == [prefix + "data"]


def test_the_type_of_a_chunk_is_looked_up_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by loading all references of its array, which may be a hundred million."""
    (tmp_path / "data").write_bytes(bytes(10_000))
    prefix = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(tmp_path)))
    )
    access = icechunk.containers_credentials({prefix: icechunk.credentials.LocalFileSystemAccess})
    repo = icechunk.Repository.create(icechunk.in_memory_storage(), config, authorize_virtual_chunk_access=access)
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=50_000, chunks=10_000, dtype="u1", compressors=None)
    zarr.create_array(session.store, name="small", shape=4, chunks=2, dtype="u1", compressors=None)[:2] = 1
    session.store.set_virtual_ref("a/c/0", prefix + "data", offset=0, length=10_000)
    array[10_000:30_000] = np.random.default_rng(0).integers(1, 255, 20_000, dtype="u1")

    def types(session: icechunk.Session) -> list[str]:
        return [session.chunk_type("a", [number]).name for number in (0, 1, 2, 3, 4, 5, -1)]

    before = types(session)
    session.commit("chunks")
    monkeypatch.setattr(ChunkReader, "references", None)
    assert types(repo.readonly_session("main")) == before
    assert before == ["virtual", "native", "native", *["uninitialized"] * 4]
    again = repo.writable_session("main")
    asyncio.run(again.store.delete("a/c/2"))
    assert types(again) == ["virtual", "native", *["uninitialized"] * 5]
    assert again.chunk_type("small", [0]) == icechunk.ChunkType.inline
    assert again.chunk_type("small", [0, 0]) == icechunk.ChunkType.uninitialized
    with pytest.raises(icechunk.NodeNotFoundError):
        again.chunk_type("b", [0])


class Redirecting(BaseHTTPRequestHandler):
    """Sends who asks for ``/here`` to the path of the server, and others nowhere."""

    def do_GET(self) -> None:
        self.send_response({"/here": 302, "/nowhere": 404}.get(self.path, 200))
        if self.path == "/here":
            self.send_header("Location", self.server.target)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def redirecting(tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    server.target = f"file://{tmp_path}"  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_redirect_leads_to_the_repository(tmp_path: Path, redirecting: str) -> None:
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path))).create_branch(
        "there", "1CECHNKREP0F1RSTCMT0"
    )
    repo = icechunk.Repository.open(icechunk.redirect_storage(redirecting + "/here"))
    assert repo.list_branches() == {"main", "there"}
    for path, reason in (("/nowhere", "404"), ("/", "does not redirect")):
        with pytest.raises(icechunk.IcechunkError, match=reason) as refused:
            icechunk.Repository.open(icechunk.redirect_storage(redirecting + path))
        assert refused.value.kind == icechunk.ErrorKind.BAD_REDIRECT


def test_a_bucket_of_hugging_face_is_reached_by_its_gateway() -> None:
    storage = icechunk.hf_storage(
        bucket="data", prefix="p", namespace="team", access_key_id="HFAKnotreal", secret_access_key="notreal"
    )
    assert storage.core().location == "s3://data/p?endpoint_url=https://s3.hf.co/team"
    assert "notreal" not in repr(storage)


def test_threads_share_a_repository(repo: icechunk.Repository) -> None:
    threads = [
        threading.Thread(target=lambda n=n: repo.create_branch(f"b{n}", repo.lookup_branch("main"))) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert repo.list_branches() == {"main", "b0", "b1", "b2", "b3"}
