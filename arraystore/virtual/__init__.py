"""Data that stays where it is: NetCDF, HDF5, GRIB and TIFF files, and kerchunk references, as virtual chunks."""

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names
from arraystore._runtime.extras import check_extra

check_extra(__name__, "virtual", "virtualizarr", "xarray")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "arraystore.virtual.datasets": "write_virtual_dataset",
            "arraystore.virtual.errors": "VirtualizeError",
            "arraystore.virtual.files": "open_virtual_file",
            "arraystore.virtual.kerchunk": "from_kerchunk",
            "arraystore.virtual.run": "VirtualizeReport virtualize",
        },
    )
else:
    from arraystore.virtual.datasets import write_virtual_dataset
    from arraystore.virtual.errors import VirtualizeError
    from arraystore.virtual.files import open_virtual_file
    from arraystore.virtual.kerchunk import from_kerchunk
    from arraystore.virtual.run import VirtualizeReport, virtualize

__all__ = [
    "VirtualizeError",
    "VirtualizeReport",
    "from_kerchunk",
    "open_virtual_file",
    "virtualize",
    "write_virtual_dataset",
]
