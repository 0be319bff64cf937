"""Versioned, transactional Zarr on object storage.

>>> import arraystore, zarr
>>> repo = arraystore.Repository.create(arraystore.in_memory_storage())
>>> session = repo.writable_session("main")
>>> array = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
>>> array[:] = 1
>>> snapshot = session.commit("four ones")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from arraystore._public import *  # noqa: F403
else:
    # Each name is imported when it is asked for: what needs little of the package starts at once.

    _MODULES = (
        *("compat", "copying", "dask", "distributed", "errors", "ingest", "simulation", "spark", "storage"),
        *("transforms", "ui", "virtual", "xarray"),
    )
    _PUBLIC_MODULES = ("distributed", "errors", "storage")  # those that need nothing but the package

    def __getattr__(name: str) -> Any:
        if not name.startswith("_") or name == "__all__":
            from arraystore import _public

            if name == "__all__" or name in _public.__all__:
                return globals().setdefault(name, getattr(_public, name))
            if name in _PUBLIC_MODULES:
                return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        from arraystore import _public

        return sorted({*_public.__all__, *_MODULES, "__version__"})
