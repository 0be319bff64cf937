"""What dask would write in other processes to copies that nobody merges is refused before anything is computed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from arraystore import InvalidInputError, LocalStorage, Repository, Session, in_memory_storage
from arraystore.dask import store_dask
from arraystore.errors import ReadOnlyError, StorageError
from arraystore.storage.wrapper import StorageRequest, WrapperStorage
from tests.integrations.test_dask import Client, never, numbers, read


def in_memory(path: Path) -> Repository:
    return Repository.create(in_memory_storage())


def on_disk(path: Path) -> Repository:
    return Repository.create(LocalStorage(path / "repo", fsync=False))


REPOSITORIES = pytest.mark.parametrize("make", [on_disk, in_memory])


def begun(repo: Repository) -> Session:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(20, 12), chunks=(4, 5), dtype="i4", dimension_names=["x", "y"])
    session.commit("an array")
    return repo.writable_session("main")


def to_zarr(source: da.Array, owner: Any, **options: Any) -> None:
    da.to_zarr(source, owner.store, component="new", **options)


def to_zarr_of_an_array(source: da.Array, owner: Any, **options: Any) -> None:
    da.to_zarr(source, zarr.open_array(owner.store, path="v"), **options)


def store(source: da.Array, owner: Any, **options: Any) -> Any:
    return da.store(source, zarr.open_array(owner.store, path="v"), lock=False, **options)


def dataset(source: da.Array, owner: Any) -> None:
    xr.Dataset({"v": (("x", "y"), source)}).to_zarr(owner.store, group="g", mode="w")


def region(source: da.Array, owner: Any) -> None:
    place = {"x": slice(0, 20), "y": slice(0, 12)}
    xr.Dataset({"v": (("x", "y"), source)}).to_zarr(owner.store, region=place, safe_chunks=False)


@REPOSITORIES
@pytest.mark.parametrize("write", [to_zarr, to_zarr_of_an_array, store, dataset, region])
@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize("scheduler", ["a client", "processes", "an executor"])
def test_writing_past_the_session_is_refused_before_anything_is_computed(
    tmp_path: Path, make: Callable[[Path], Repository], write: Callable[..., None], forked: bool, scheduler: str
) -> None:
    session = begun(make(tmp_path))
    client = Client("tcp://10.0.0.1:8786")
    chosen = {"a client": client, "processes": "processes", "an executor": ProcessPoolExecutor(1)}[scheduler]
    with dask.config.set(scheduler=chosen), pytest.raises(InvalidInputError) as caught:
        write(never(), session.fork() if forked else session)
    assert "arraystore.dask.store_dask or arraystore.xarray.to_arraystore" in str(caught.value)
    assert ("local_filesystem_storage" in str(caught.value)) == (make is in_memory)
    assert client.submitted == 0


@REPOSITORIES
@pytest.mark.parametrize("write", [store, region])
@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize("scheduler", ["threads", "a client in this process", None])
def test_threads_write_to_stores_of_sessions_and_forks(
    tmp_path: Path, make: Callable[[Path], Repository], write: Callable[..., None], forked: bool, scheduler: Any
) -> None:
    repo = make(tmp_path)
    session = begun(repo)
    owner = session.fork() if forked else session
    chosen = Client("inproc://10.0.0.1/1/1") if scheduler == "a client in this process" else scheduler
    with dask.config.set(scheduler=chosen):
        write(numbers(), owner)
    if forked:
        session.merge(owner)
    session.commit("written")
    np.testing.assert_array_equal(read(repo, "v"), np.arange(240).reshape(20, 12))


def test_the_scheduler_that_is_passed_counts(local_repo: Repository) -> None:
    session = begun(local_repo)
    with pytest.raises(InvalidInputError, match="processes of dask"):
        store(never(), session, scheduler="processes")
    with dask.config.set(scheduler="processes"):
        store(numbers(), session, scheduler="synchronous")
    assert int(session.read("v", (3, 4))) == 40


@pytest.mark.thorough
def test_metadata_of_what_is_never_computed_is_written_with_any_scheduler(local_repo: Repository) -> None:
    session = begun(local_repo)
    with dask.config.set(scheduler="processes"):
        xr.Dataset({"v": (("x", "y"), never())}).to_zarr(session.store, group="g", mode="w", compute=False)
        waiting = store(numbers(), session.fork(), compute=False)
        session.commit("a template")
        with pytest.raises(ReadOnlyError, match="send the fork itself"):
            waiting.compute(num_workers=1)


def test_a_name_for_dask_sends_nothing_and_differs_after_a_write(local_repo: Repository) -> None:
    session = begun(local_repo)
    array = zarr.open_array(session.store, path="v")
    array[:] = 3
    with mock.patch.object(Session, "_send_uncommitted", side_effect=AssertionError("it was pickled")):
        before = dask.base.tokenize(array)
    array[:] = 4
    assert dask.base.tokenize(array) != before
    fixed = zarr.open_array(local_repo.readonly_session("main").store, path="v", mode="r")
    again = zarr.open_array(local_repo.readonly_session("main").store, path="v", mode="r")
    assert dask.base.tokenize(fixed) == dask.base.tokenize(again)


def test_arrays_of_other_stores_keep_their_names(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "plain", shape=(4,), dtype="i4")
    begun(in_memory(tmp_path))
    assert dask.base.tokenize(array) == dask.base.tokenize(zarr.open_array(tmp_path / "plain"))
    with dask.config.set(scheduler="synchronous"):
        da.to_zarr(da.arange(4, chunks=4, dtype="i4"), array)
    assert array[3] == 3


# -- a cluster ----------------------------------------------------------------------------------------------------


class KillsAWorker(WrapperStorage):
    """Kills the process that is the first to have written a pack in a directory, before it can tell of it."""

    def __init__(self, inner: LocalStorage, flag: Path, main: int) -> None:
        super().__init__(inner)
        self._flag, self._main = flag, main

    def __reduce__(self) -> Any:
        return type(self), (self.inner, self._flag, self._main)

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        yield 0.0
        if os.getpid() != self._main and request.operation == "put" and request.keys[0].startswith("chunks/"):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._flag, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        yield 0.0


@pytest.mark.thorough
def test_a_cluster_that_loses_a_worker_in_mid_write_writes_everything_once(tmp_path: Path) -> None:
    from distributed import Client as RealClient
    from distributed import LocalCluster

    flag = tmp_path / "killed"
    repo = Repository.create(KillsAWorker(LocalStorage(tmp_path / "repo", fsync=False), flag, os.getpid()))
    session = repo.writable_session("main")
    shape = (16, 50, 50)
    target = zarr.create_array(session.store, name="a", shape=shape, chunks=(1, 50, 50), dtype="i4")
    source = da.from_array(np.arange(np.prod(shape), dtype="i4").reshape(shape), chunks=(1, 50, 50))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        RealClient(cluster),
    ):
        with pytest.raises(InvalidInputError, match="processes of dask"):
            da.store(source, target, lock=False)
        store_dask(sources=source, targets=target, split_every=4)
    assert flag.exists()
    assert len(session.chunk_coordinates("a")) == 16
    session.commit("computed")
    np.testing.assert_array_equal(read(repo), np.arange(np.prod(shape)).reshape(shape))


@pytest.mark.thorough
def test_a_cluster_that_reads_memory_of_this_process_fails_with_the_remedy(tmp_path: Path) -> None:
    from distributed import Client as RealClient
    from distributed import LocalCluster

    session = begun(in_memory(tmp_path))
    xr.Dataset({"v": (("x", "y"), np.ones((4, 4)))}).to_zarr(session.store, group="g", mode="w", consolidated=False)
    fork = session.fork()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        RealClient(cluster) as client,
    ):
        for store in (session.store, fork.store):
            lazy = xr.open_zarr(store, group="g", chunks={}, consolidated=False)
            with pytest.raises(StorageError, match="use local_filesystem_storage"):
                client.compute(lazy.v.data.sum()).result(timeout=30)
        with pytest.raises(StorageError, match="use local_filesystem_storage"):
            client.submit(lambda sent: sent.changes(), fork).result(timeout=30)
