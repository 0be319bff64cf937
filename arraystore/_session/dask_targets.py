"""Arrays that dask is told to write into: refused, before anything is computed, where other processes would write.

What dask writes to an array in another process goes into a copy of its session or fork that nobody merges.  Dask asks
for the token of an array before it writes, which is the only thing that it asks here.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from types import FrameType
from typing import Any

from zarr.storage import StorePath

from arraystore.errors import InvalidInputError

_registered: set[int] = set()


def register_tokens() -> None:
    """Tell dask, where it was imported, how to name arrays of stores; others keep their names."""
    base = sys.modules.get("dask.base")
    normalize: Any = getattr(base, "normalize_token", None)
    if normalize is not None and id(normalize) not in _registered:
        _registered.add(id(normalize))
        normalize.register(StorePath, partial(_token, normalize.dispatch(object)))


def _token(others: Any, path: Any) -> Any:
    store_token = getattr(path.store, "__dask_tokenize__", None)
    if store_token is None or not hasattr(path.store, "_session"):
        return others(path)
    if not path.store.read_only and (frame := _storing()) is not None:
        _check_target(path, frame)
    return "arraystore", store_token(), path.path


def _storing() -> FrameType | None:
    """Return the frame of `dask.array.store`, if it asks."""
    code = getattr(getattr(sys.modules.get("dask.array.core"), "store", None), "__code__", None)
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def _check_target(path: StorePath, frame: FrameType) -> None:
    """Check that what is computed at once is not computed by other processes; raises `InvalidInputError`."""
    base: Any = sys.modules["dask.base"]
    options = frame.f_locals.get("kwargs") or {}
    if not frame.f_locals.get("compute", True):
        return  # often never computed; if it is, copies in other processes refuse to be written to
    get = base.get_scheduler(scheduler=options.get("scheduler"), collections=frame.f_locals.get("sources"))
    if not has_processes(get):
        return
    store: Any = path.store
    storage = store._session.context.storage
    if storage.shared:
        remedy = "use arraystore.dask.store_dask or arraystore.xarray.to_arraystore, which merge what processes write"
    else:
        remedy = (
            f"{storage.location} is memory of this process, which they cannot access: use local_filesystem_storage or "
            "an object store, and arraystore.dask.store_dask or arraystore.xarray.to_arraystore"
        )
    raise InvalidInputError(
        f"processes of dask would write to copies of {path.path!r} that nobody merges, and nothing was computed: "
        f"{remedy}; or compute with threads, by dask.config.set(scheduler='threads')"
    )


def has_processes(get: Any) -> bool:
    """Tell whether a scheduler of dask computes in other processes, as far as that can be detected."""
    client = getattr(get, "__self__", None)
    if "Client" in type(client).__name__:
        address = getattr(getattr(client, "scheduler", None), "address", "")
        return not str(address).startswith("inproc:")  # workers of that one are threads of this process
    executor = getattr(get.args[0], "__self__", None) if isinstance(get, partial) and get.args else None
    processes: Any = sys.modules["dask.base"]
    return get is processes.named_schedulers["processes"] or isinstance(executor, ProcessPoolExecutor)
