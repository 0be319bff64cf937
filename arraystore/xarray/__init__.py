"""Datasets of xarray: written into sessions, and opened from repositories with ``engine="arraystore"``."""

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names
from arraystore._runtime.extras import check_extra

check_extra(__name__, "xarray", "xarray")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "arraystore.xarray.entrypoint": "ArrayStoreBackendEntrypoint",
            "arraystore.xarray.deferred": "PendingWrite",
            "arraystore.xarray.writing": "to_arraystore to_icechunk",
        },
    )
else:
    from arraystore.xarray.deferred import PendingWrite
    from arraystore.xarray.entrypoint import ArrayStoreBackendEntrypoint
    from arraystore.xarray.writing import to_arraystore, to_icechunk

__all__ = ["ArrayStoreBackendEntrypoint", "PendingWrite", "to_arraystore", "to_icechunk"]
