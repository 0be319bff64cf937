"""Versioned, transactional Zarr on object storage.

>>> import arraystore, zarr
>>> repo = arraystore.Repository.create(arraystore.in_memory_storage())
>>> session = repo.writable_session("main")
>>> array = zarr.create_array(session.store, name="a", shape=4, chunks=2, dtype="i4")
>>> array[:] = 1
>>> snapshot = session.commit("four ones")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from arraystore.public import *  # noqa: F403
else:
    # Everything is imported when the first of it is asked for: what needs nothing of it, such as the help of the
    # command line, starts at once.

    def _public() -> Any:
        import importlib

        return importlib.import_module("arraystore.public")

    def __getattr__(name: str) -> Any:
        if not name.startswith("__") or name == "__all__":
            public = _public()
            if name == "__all__" or name in public.__all__:
                return globals().setdefault(name, getattr(public, name))
            if name in globals():  # a module of the package, imported by now
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_public().__all__})
