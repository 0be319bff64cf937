"""xarray's own tests of its Zarr backend, on sessions: by zarr and by the engine of this library.

They run on memory, and on a local directory whose repository is committed and opened again before each read.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import xarray as xr

from arraystore import ArrayStore, Repository, in_memory_storage, local_filesystem_storage
from arraystore.storage import Storage
from arraystore.xarray import ArrayStoreBackendEntrypoint

backends = pytest.importorskip("xarray.tests.test_backends")
default_zarr_format = backends.default_zarr_format
fixtures = pytest.importorskip("xarray.tests.conftest")
time_unit, use_dask = fixtures.time_unit, fixtures.use_dask

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore"),
]


class _Target(ArrayStore):
    """A store of which the session is committed, and followed by another, whenever somebody reads it anew."""

    def reopened(self) -> ArrayStore:
        """Commit what there is, and return a store of the commit."""
        session = self.session
        if session.has_uncommitted_changes:
            session.commit("what a test wrote")
        repo = Repository.open(session.context.storage)
        self._session = repo.writable_session("main")
        return repo.readonly_session("main").store


class _Sessions(backends.ZarrBase):
    """The tests, on stores of sessions."""

    reopens: ClassVar[bool] = False
    by_engine: ClassVar[bool] = False

    @contextlib.contextmanager
    def new_storage(self) -> Iterator[Storage]:
        yield in_memory_storage()

    @contextlib.contextmanager
    def create_zarr_target(self) -> Iterator[Any]:
        with self.new_storage() as storage:
            yield _Target(Repository.create(storage).writable_session("main"))

    @contextlib.contextmanager
    def open(self, path: Any, **options: Any) -> Iterator[xr.Dataset]:
        store = path.reopened() if self.reopens and isinstance(path, _Target) else path
        if self.by_engine and isinstance(store, ArrayStore):
            options |= options.pop("backend_kwargs", {})
            for name in ("consolidated", "use_zarr_fill_value_as_mask"):  # the latter has no effect in xarray either
                options.pop(name, None)
            with xr.open_dataset(store, engine=ArrayStoreBackendEntrypoint, **options) as dataset:
                yield dataset
        else:
            with super().open(store, **options) as dataset:
                yield dataset


class _Local(_Sessions):
    @contextlib.contextmanager
    def new_storage(self) -> Iterator[Storage]:
        with tempfile.TemporaryDirectory() as directory:
            yield local_filesystem_storage(directory, fsync=False)


class TestMemoryByZarr(_Sessions):
    pass


class TestMemoryByEngine(_Sessions):
    by_engine = True


class TestReopenedByZarr(_Local):
    reopens = True


class TestReopenedByEngine(_Local):
    reopens = True
    by_engine = True
