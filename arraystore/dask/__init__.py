"""Dask arrays: stored into sessions, and read from them, a region for each block."""

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names
from arraystore._runtime.extras import check_extra

check_extra(__name__, "dask", "dask")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"arraystore.dask.loading": "load_dask", "arraystore.dask.storing": "store_dask"},
    )
else:
    from arraystore.dask.loading import load_dask
    from arraystore.dask.storing import store_dask

__all__ = ["load_dask", "store_dask"]
