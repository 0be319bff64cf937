"""Dask arrays get into a session whole, on any scheduler, and what would not is refused before it is computed."""

from __future__ import annotations

import pickle
import uuid
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import (
    CountingStorage,
    InvalidInputError,
    LatencyStorage,
    MemoryStorage,
    MergeConflictError,
    ReadOnlyError,
    Repository,
    Session,
    SessionStateError,
    StorageError,
    fsspec_storage,
    in_memory_storage,
)
from arraystore.dask import store_dask
from arraystore.xarray import to_arraystore
from tests.storage.workers import call_in_process


@pytest.fixture
def session(memory_repo: Repository) -> Session:
    return memory_repo.writable_session("main")


def new_array(session: Session, name: str = "a", **options: Any) -> zarr.Array[Any]:
    options = {"shape": (20, 12), "chunks": (4, 5), "dtype": "i4", "fill_value": -1} | options
    return zarr.create_array(session.store, name=name, **options)


def numbers(shape: tuple[int, ...] = (20, 12), chunks: Any = (4, 5), start: int = 0) -> da.Array:
    return da.from_array(start + np.arange(np.prod(shape), dtype="i4").reshape(shape), chunks=chunks)


def never(shape: tuple[int, ...] = (20, 12), chunks: Any = (4, 5)) -> da.Array:
    """An array that must not be computed."""
    return da.map_blocks(_fail, numbers(shape, chunks), dtype="i4", meta=np.empty((0, 0), "i4"))


def _fail(block: np.ndarray) -> np.ndarray:
    raise AssertionError("this was computed")


def read(repo: Repository, name: str = "a") -> np.ndarray:
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path=name, mode="r")[...])


def test_all_blocks_arrive_on_any_scheduler(local_repo: Repository, scheduler: dict[str, Any]) -> None:
    session = local_repo.writable_session("main")
    new_array(session)
    new_array(session, "b", shape=(6,), chunks=(2,))
    fork = session.fork()
    targets = [zarr.open_array(fork.store, path=path) for path in ("a", "b")]
    sources = [numbers(chunks=(8, 5)) + 1, numbers((6,), (2,))]
    session.merge(store_dask(sources=sources, targets=targets, split_every=2, **scheduler))
    session.commit("computed")
    np.testing.assert_array_equal(read(local_repo), 1 + np.arange(240).reshape(20, 12))
    np.testing.assert_array_equal(read(local_repo, "b"), np.arange(6))


def test_what_goes_to_arrays_of_a_session_is_merged_at_once(memory_repo: Repository, session: Session) -> None:
    target = new_array(session)
    payload = store_dask(sources=numbers(), targets=target)
    np.testing.assert_array_equal(target[:], np.arange(240).reshape(20, 12))
    with pytest.raises(MergeConflictError, match="merged already"):
        session.merge(payload)
    session.commit("computed")
    np.testing.assert_array_equal(read(memory_repo), np.arange(240).reshape(20, 12))


def test_what_goes_to_arrays_of_a_fork_waits_to_be_merged(session: Session) -> None:
    new_array(session)
    fork = session.fork()
    payload = store_dask(sources=[numbers()], targets=[zarr.open_array(fork.store, path="a")])
    assert not fork.has_uncommitted_changes
    assert int(zarr.open_array(session.store, path="a")[0, 0]) == -1
    session.merge(payload)
    assert int(zarr.open_array(session.store, path="a")[0, 0]) == 0


def test_scalars_empty_arrays_and_empty_blocks_are_fine(session: Session) -> None:
    scalar = new_array(session, "scalar", shape=(), chunks=())
    empty = new_array(session, "empty", shape=(0, 3), chunks=(1, 3))
    line = new_array(session, "line", shape=(4,), chunks=(2,))
    sources = [da.from_array(np.array(7, "i4")), da.zeros((0, 3), dtype="i4"), numbers((4,), ((0, 2, 0, 2, 0),))]
    store_dask(sources=sources, targets=[scalar, empty, line])
    assert int(scalar[()]) == 7
    np.testing.assert_array_equal(line[:], np.arange(4))


def test_regions_may_start_within_a_chunk_and_leave_the_rest_of_it_alone(session: Session) -> None:
    target = new_array(session)
    target[:] = 5
    store_dask(sources=numbers((11, 12), ((2, 4, 4, 1), 12)), targets=target, regions=(slice(6, 17),))
    expected = np.full((20, 12), 5)
    expected[6:17] = np.arange(132).reshape(11, 12)
    np.testing.assert_array_equal(target[:], expected)


def test_regions_may_have_steps(session: Session) -> None:
    target = new_array(session, shape=(12,), chunks=(4,))
    store_dask(sources=numbers((6,), (2,)), targets=target, regions=(slice(1, None, 2),))
    np.testing.assert_array_equal(target[:], [-1, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5])


def test_two_regions_of_one_array_are_written_in_one_go(session: Session) -> None:
    target = new_array(session)
    halves = [numbers((8, 12)), numbers((12, 12), start=96)]
    store_dask(sources=halves, targets=[target] * 2, regions=[(slice(8),), (slice(8, None),)])
    np.testing.assert_array_equal(target[:], np.arange(240).reshape(20, 12))


def test_what_was_merged_before_may_be_written_again(session: Session) -> None:
    target = new_array(session)
    store_dask(sources=numbers(), targets=target)
    store_dask(sources=numbers((8, 12)) + target[2, 2], targets=target, regions=(slice(8),))
    np.testing.assert_array_equal(target[:8], 26 + np.arange(96).reshape(8, 12))
    np.testing.assert_array_equal(target[8:], np.arange(96, 240).reshape(12, 12))


@pytest.mark.parametrize(
    ("chunks", "region", "advice"),
    [
        ((6, 5), slice(0, 20), "{0: 4}"),
        ((4, 8), slice(0, 20), "{1: 5}"),
        ((10, 12), slice(0, 20), "{0: 8}"),
        ((4, 12), slice(6, 19), "{0: (2, 4, 4, 3)}"),
    ],
)
def test_blocks_that_share_a_chunk_are_refused_with_advice_that_works(
    session: Session, chunks: Any, region: slice, advice: str
) -> None:
    target = new_array(session)
    shape = (region.stop - region.start, 12)
    with pytest.raises(InvalidInputError) as caught:
        store_dask(sources=never(shape, chunks), targets=target, regions=(region,))
    assert str(caught.value).endswith(f"source.rechunk({advice})")
    source = numbers(shape, chunks).rechunk({0: chunks[0]} if chunks[0] == 4 and not region.start else {1: 12})
    store_dask(sources=source.rechunk(eval(advice)), targets=target, regions=(region,))
    np.testing.assert_array_equal(target[region], np.arange(np.prod(shape)).reshape(shape))


def test_blocks_are_compared_with_shards_where_there_are_shards(session: Session) -> None:
    target = new_array(session, shape=(16,), chunks=(2,), shards=(8,))
    with pytest.raises(InvalidInputError, match=r"rechunk\(\{0: 8\}\)"):
        store_dask(sources=numbers((16,), (4,)), targets=target)
    store_dask(sources=numbers((16,), (8,)), targets=target)
    np.testing.assert_array_equal(target[:], np.arange(16))


def test_sources_that_share_a_chunk_are_refused_with_its_place(session: Session) -> None:
    target = new_array(session)
    with pytest.raises(MergeConflictError) as caught:
        store_dask(
            sources=[never((6, 12), (6, 12)), never((14, 12), ((2, 12), 12))],
            targets=[target, target],
            regions=[(slice(6),), (slice(6, None),)],
        )
    assert caught.value.path == "a"
    assert caught.value.chunks == ((1, 0), (1, 1), (1, 2))
    assert not np.any(target[:] != -1)


def test_one_source_for_one_array_twice_is_refused(session: Session) -> None:
    target = new_array(session, shape=(), chunks=())
    with pytest.raises(MergeConflictError) as caught:
        store_dask(sources=[da.from_array(np.array(1))] * 2, targets=[target] * 2)
    assert caught.value.chunks == ((),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda a: {"sources": [], "targets": []}, "of 0 sessions"),
        (lambda a: {"sources": [never()], "targets": [a, a]}, "1 sources, 2 targets"),
        (lambda a: {"sources": [np.zeros((20, 12))], "targets": [a]}, "not ndarray"),
        (lambda a: {"sources": never((8, 12)), "targets": a}, "does not fill"),
        (lambda a: {"sources": never(), "targets": a, "regions": (slice(None, None, -1),)}, "step > 0"),
        (lambda a: {"sources": numbers()[numbers() > 3], "targets": a}, "compute_chunk_sizes"),
        (lambda a: {"sources": never(), "targets": np.zeros((20, 12))}, "session.store"),
        (lambda a: {"sources": never(), "targets": zarr.zeros((20, 12), store={})}, "session.store"),
        (lambda a: {"sources": never(), "targets": a, "compute": False}, "omit compute="),
        (lambda a: {"sources": never(), "targets": a, "lock": True}, "omit lock="),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    session: Session, arguments: Callable[[Any], dict[str, Any]], message: str
) -> None:
    target = new_array(session)
    with pytest.raises(InvalidInputError, match=message):
        store_dask(**arguments(target))


def test_targets_of_several_forks_are_refused(session: Session) -> None:
    new_array(session)
    new_array(session, "b")
    targets = [zarr.open_array(session.fork().store, path=path) for path in ("a", "b")]
    with pytest.raises(InvalidInputError, match="of 2 sessions or forks"):
        store_dask(sources=[never(), never()], targets=targets)


def test_targets_of_a_session_that_only_reads_are_refused(memory_repo: Repository, session: Session) -> None:
    new_array(session)
    session.commit("an array")
    target = zarr.open_array(memory_repo.readonly_session("main").store, path="a", mode="r")
    with pytest.raises(ReadOnlyError):
        store_dask(sources=never(), targets=target)


def test_a_fork_that_holds_what_its_copies_would_not_see_is_refused(session: Session) -> None:
    fork = session.fork()
    target = new_array(fork)
    with pytest.raises(SessionStateError, match="before session"):
        store_dask(sources=never(), targets=target)


def test_nothing_is_merged_if_a_task_fails(session: Session) -> None:
    target = new_array(session)
    source = da.concatenate([numbers((8, 12), (4, 12)), never((12, 12), (4, 12))])
    with pytest.raises(AssertionError, match="this was computed"):
        store_dask(sources=source, targets=target, scheduler="synchronous")
    assert not np.any(target[:] != -1)


def test_a_task_costs_one_request_however_many_chunks_it_writes() -> None:
    storage = CountingStorage(in_memory_storage())
    session = Repository.create(storage).writable_session("main")
    target = new_array(session, shape=(64, 1000), chunks=(1, 500), compressors=None)
    session.commit("an array")
    session = Repository.open(storage).writable_session("main")
    target = zarr.open_array(session.store, path="a")
    before = storage.counts
    store_dask(sources=numbers((64, 1000), (16, 1000)), targets=target)
    spent = storage.counts - before
    assert (spent["put"], spent.total) == (4, 4)


def test_an_array_is_computed_from_another_of_the_same_session(local_repo: Repository, scheduler: Any) -> None:
    session = local_repo.writable_session("main")
    first, second = new_array(session), new_array(session, "b")
    first[:] = 20
    source = da.from_array(first, chunks=(4, 12), lock=False) + 1
    with dask.config.set(**scheduler):
        store_dask(sources=source, targets=second)
    assert np.all(second[:] == 21)


def test_a_commit_afterwards_complains_of_no_fork_that_was_left_behind(session: Session) -> None:
    target = new_array(session)
    store_dask(sources=numbers(), targets=target)
    fork = session.fork()
    session.merge(
        store_dask(sources=numbers((4, 12)), targets=zarr.open_array(fork.store, path="a"), regions=(slice(4),))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.commit("computed")


# -- schedulers whose processes cannot open the storage ------------------------------------------------------------


class Client:
    """What dask takes for the client of a cluster, by its name; nothing may be submitted to it."""

    def __init__(self, address: str) -> None:
        self.scheduler = SimpleNamespace(address=address)
        self.asynchronous = False
        self.submitted = 0

    def get(self, graph: Any, keys: Any, **options: Any) -> Any:
        self.submitted += 1
        return dask.get(graph, keys)


def unreachable(kind: str) -> Any:
    """Return a storage that no other process can open."""
    if kind == "in memory":
        return in_memory_storage()
    if kind == "wrapped":
        return CountingStorage(LatencyStorage(in_memory_storage()))
    if kind == "of fsspec":
        return fsspec_storage(f"memory://{uuid.uuid4().hex}/repository")
    return CountingStorage(WithALock())


class WithALock(MemoryStorage):
    """Holds something that cannot be pickled."""

    shared = True

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle '_thread.lock' object")


UNREACHABLE = pytest.mark.parametrize("kind", ["in memory", "wrapped", "of fsspec", "with a lock"])


@UNREACHABLE
@pytest.mark.parametrize("scheduler", ["a client", "a default client", "processes", "an executor"])
def test_what_processes_cannot_open_is_refused_before_anything_is_submitted(kind: str, scheduler: str) -> None:
    repo = Repository.create(unreachable(kind))
    session = repo.writable_session("main")
    target = new_array(session)
    client = Client("tcp://10.0.0.1:8786")
    executor = ProcessPoolExecutor(1)  # starts none before it gets something to do
    options = {"a client": client, "processes": "processes", "an executor": executor}
    settings = {"scheduler": client} if scheduler == "a default client" else {}
    arguments = {} if settings else {"scheduler": options[scheduler]}
    with dask.config.set(settings), pytest.raises(InvalidInputError, match="processes of dask"):
        store_dask(sources=[never()], targets=[target], **arguments)
    dataset = xr.Dataset({"v": (("x", "y"), never())})
    with dask.config.set(settings), pytest.raises(InvalidInputError, match="processes of dask"):
        to_arraystore(dataset, session, group="g", chunkmanager_store_kwargs=arguments)
    assert client.submitted == 0
    assert not session.has_forks
    assert session.status().new_arrays == {"/a"}, "nothing of the dataset was written either"


@UNREACHABLE
@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "a pool of threads", "a client in this process", None])
def test_threads_may_write_to_any_storage(kind: str, scheduler: Any) -> None:
    repo = Repository.create(unreachable(kind))
    session = repo.writable_session("main")
    target = new_array(session)
    with ThreadPoolExecutor(2) as pool:
        options = {"a pool of threads": pool, "a client in this process": Client("inproc://10.0.0.1/1/1")}
        chosen = options.get(scheduler, scheduler)
        store_dask(sources=[numbers()], targets=[target], **({} if chosen is None else {"scheduler": chosen}))
    session.commit("computed")
    np.testing.assert_array_equal(read(repo), np.arange(240).reshape(20, 12))


def test_a_cluster_may_write_to_what_its_processes_can_open(local_repo: Repository) -> None:
    session = local_repo.writable_session("main")
    client = Client("tcp://10.0.0.1:8786")
    store_dask(sources=[numbers()], targets=[new_array(session)], scheduler=client)
    session.commit("computed")
    assert client.submitted == 1
    np.testing.assert_array_equal(read(local_repo), np.arange(240).reshape(20, 12))


def _read(pickled: list[bytes]) -> list[str]:
    found: list[str] = []
    for thing in map(pickle.loads, pickled):
        try:
            zarr.open_group(getattr(thing, "store", thing), mode="r")
            found.append("read")
        except StorageError as error:
            found.append(str(error))
    return found


@pytest.mark.thorough
def test_what_is_pickled_all_the_same_says_elsewhere_that_it_cannot_be_read() -> None:
    session = Repository.create(CountingStorage(in_memory_storage())).writable_session("main")
    new_array(session)
    pickled = [pickle.dumps(thing) for thing in (session, session.fork(), session.store)]
    found = call_in_process("spawn", _read, pickled)
    assert ["use local_filesystem_storage" in each for each in found] == [True, True, True]
