"""zarr's own suite for stores, as it comes."""

from __future__ import annotations

from typing import Any

import pytest
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

from arraystore import ArrayStore, Repository
from arraystore.storage import Storage


class TestStore(StoreTests[ArrayStore, cpu.Buffer]):
    store_cls = ArrayStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, storage: Storage) -> dict[str, Any]:
        return {"session": Repository.create(storage).writable_session("main")}

    async def set(self, store: ArrayStore, key: str, value: Buffer) -> None:
        store.session.hierarchy.set_sync(key, memoryview(value.to_bytes()))

    async def get(self, store: ArrayStore, key: str) -> Buffer:
        data = store.session.hierarchy.get_sync(key)
        assert data is not None
        return self.buffer_cls.from_bytes(bytes(data))

    def test_store_repr(self, store: ArrayStore) -> None:
        assert repr(store) == f"ArrayStore({store.session!s})"
        assert str(store) == f"arraystore://{store.session.describe()}"

    def test_store_supports_writes(self, store: ArrayStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: ArrayStore) -> None:
        assert store.supports_listing
