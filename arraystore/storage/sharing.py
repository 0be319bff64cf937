"""Check that other processes can open a storage, made before work is sent to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arraystore._runtime.engine import Engine, EngineOption, worker_engine
from arraystore.errors import ArrayStoreError, InvalidInputError
from arraystore.storage.protocol import Storage

__all__ = ["check_shared", "engine_for"]


def check_shared(storage: Storage, who: str, dumps: Callable[[Any], object] | None = None) -> None:
    """Raise `InvalidInputError` or `StorageError` unless other processes, named `who`, can open a storage.

    `dumps` is the function that pickles the storage for them, None if pickling is checked later.
    """
    if not storage.shared:
        raise InvalidInputError(
            f"{storage.location} is memory of this process, which {who} cannot access: use local_filesystem_storage "
            "or an object store"
        )
    if dumps is None:
        return
    try:
        dumps(storage)
    except ArrayStoreError:
        raise
    except Exception as error:  # of any type
        raise InvalidInputError(
            f"{storage.location} cannot be opened by {who}: pickling its {type(storage).__name__} failed with "
            f"{type(error).__name__}: {error}; build the storage from picklable values, for example functions of a "
            "module"
        ) from error


def engine_for(engine: EngineOption, *storages: Storage) -> Engine | None:
    """Return the engine of workers that can open some storages, else raise; None for threads of this process."""
    workers = worker_engine(engine)
    if workers is not None:
        for storage in storages:
            check_shared(storage, workers.workers, workers.dumps)
    return workers
