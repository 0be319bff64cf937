"""Who does not use xarray or dask does not pay for them."""

from __future__ import annotations

import subprocess
import sys


def output_of(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120).stdout


def test_the_package_itself_imports_neither() -> None:
    code = "import sys, arraystore; print({'dask', 'distributed', 'xarray'} & sys.modules.keys())"
    assert output_of(code).strip() == "set()"


def test_xarray_alone_is_enough_where_nothing_is_lazy() -> None:
    code = (
        "import sys; sys.modules['dask'] = None\n"
        "import numpy as np, xarray as xr, arraystore\n"
        "from arraystore.xarray import to_arraystore\n"
        "session = arraystore.Repository.create(arraystore.in_memory_storage()).writable_session('main')\n"
        "to_arraystore(xr.Dataset({'v': ('x', np.arange(3))}), session)\n"
        "print(xr.open_zarr(session.store, consolidated=False, chunks=None)['v'].values.tolist())"
    )
    assert output_of(code).strip() == "[0, 1, 2]"
