"""Opening sources: NetCDF-3, NetCDF-4, HDF5 and Zarr, raw, as they are stored.

Nothing is decoded: the repository holds the same numbers and attributes as the source, and readers decode them in the
same way.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from typing import Any

import numpy as np
import xarray as xr

from arraystore.ingest.classic import check_classic_length
from arraystore.ingest.errors import SourceFormatError, SourceNotFoundError
from arraystore.ingest.model import SourceInfo, VariableInfo

_ENGINES = {
    "HDF5": ("netcdf4", "h5netcdf"),
    "NetCDF-3": ("netcdf4", "scipy"),
    "NetCDF-3 (64-bit data)": ("netcdf4",),
    "Zarr": ("zarr",),
}
_MODULES = {"netcdf4": "netCDF4", "h5netcdf": "h5netcdf", "scipy": "scipy", "zarr": "zarr"}
_PACKAGES = {"HDF5": "netCDF4 or h5netcdf", "NetCDF-3": "netCDF4 or scipy", "NetCDF-3 (64-bit data)": "netCDF4"}
_MAGIC = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"CDF\x01": "NetCDF-3",
    b"CDF\x02": "NetCDF-3",
    b"CDF\x05": "NetCDF-3 (64-bit data)",
}
_HDF5_SUPERBLOCKS = (0, 512, 1024, 2048)
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zmetadata")
_STORABLE_KINDS = "biufcSOMm"


def format_of(path: str) -> str:
    """Detect the format of a source by its content, whatever its name."""
    if "://" in path:
        return "Zarr"  # of the formats only Zarr can be read in parts over a network
    if not os.path.exists(path):
        raise SourceNotFoundError(
            f"source {path!r} does not exist; check the path (it must be readable by every executor)"
        )
    if os.path.isdir(path):
        if any(os.path.exists(os.path.join(path, mark)) for mark in _ZARR_MARKS):
            return "Zarr"
        raise SourceFormatError(
            f"source {path!r} is a directory without a Zarr group; name a file, or a Zarr group's directory"
        )
    return _format_of_file(path)


def _format_of_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(8)
            for mark, name in _MAGIC.items():
                if head.startswith(mark):
                    return name
            for offset in _HDF5_SUPERBLOCKS[1:]:  # HDF5 allows a user block in front
                file.seek(offset)
                if file.read(8) == b"\x89HDF\r\n\x1a\n":
                    return "HDF5"
    except OSError as error:
        raise SourceFormatError(f"source {path!r} cannot be read: {error.strerror or error}") from error
    raise SourceFormatError(
        f"source {path!r} is neither NetCDF-3, NetCDF-4, HDF5 nor Zarr; convert it to one of them first"
    )


def open_source(path: str, engine: str, group: str | None) -> xr.Dataset:
    """Open a source raw and lazily; the caller closes it."""
    options: dict[str, Any] = {"phony_dims": "sort"} if engine == "h5netcdf" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing consolidated metadata and the like
        return xr.open_dataset(
            path,
            engine=engine,  # pyright: ignore[reportArgumentType]
            group=group,
            chunks=None,
            cache=False,
            mask_and_scale=False,
            decode_times=False,
            decode_timedelta=False,
            decode_coords=False,
            use_cftime=None,
            concat_characters=True,
            create_default_indexes=False,
            **options,
        )


def describe_source(path: str, group: str | None = None) -> SourceInfo:
    """Read a source's metadata.

    Raises
    ------
    SourceNotFoundError
        If there is no such source, or no such group in it.
    SourceFormatError
        If it cannot be read, or holds a variable that no Zarr array can hold.
    """
    kind = format_of(path)
    if kind.startswith("NetCDF-3"):
        check_classic_length(path)
    failures: list[str] = []
    for engine in _ENGINES[kind]:
        if importlib.util.find_spec(_MODULES[engine]) is None:
            continue
        try:
            with open_source(path, engine, group) as dataset:
                return _describe(path, engine, group, dataset)
        except (OSError, ValueError, KeyError, RuntimeError, AttributeError, NotImplementedError) as error:
            if isinstance(error, SourceFormatError):
                raise
            failures.append(f"{engine}: {error}")
    if not failures:
        raise SourceFormatError(f"source {path!r} is {kind}, which needs a package: install {_PACKAGES[kind]}")
    where = f" (group {group!r})" if group else ""
    if "://" in path:
        raise SourceNotFoundError(f"source {path!r}{where} cannot be opened as a Zarr group: {'; '.join(failures)}")
    raise SourceFormatError(f"source {path!r}{where} looks like {kind} but cannot be read: {'; '.join(failures)}")


def _describe(path: str, engine: str, group: str | None, dataset: xr.Dataset) -> SourceInfo:
    variables = {str(name): _variable(path, str(name), var) for name, var in dataset.variables.items()}
    if not variables:
        raise SourceFormatError(
            f"source {path!r} has no variables in its {'group ' + repr(group) if group else 'root group'}; "
            "if they are in a group of the file, name it (--source-group)"
        )
    return SourceInfo(path, engine, group, {str(k): v for k, v in dataset.attrs.items()}, variables)


def _variable(path: str, name: str, var: xr.Variable) -> VariableInfo:
    dims = tuple(str(dim) for dim in var.dims)
    if len(set(dims)) != len(dims):
        raise SourceFormatError(
            f"variable {name!r} of {path!r} has a dimension twice {dims}; rename one, or leave it out (--skip {name})"
        )
    dtype = plain_dtype(var.dtype)
    if dtype.kind not in _STORABLE_KINDS or (dtype.kind == "O" and not _is_text(var)):
        raise SourceFormatError(
            f"variable {name!r} of {path!r} is of type {var.dtype}, which no Zarr array can hold; leave it out "
            f"(--skip {name})"
        )
    attrs = {str(key): value for key, value in var.attrs.items()}
    return VariableInfo(name, dims, tuple(var.shape), dtype, attrs, _native_chunks(var))


def _is_text(var: xr.Variable) -> bool:
    dtype = np.dtype(var.dtype)
    declared = dtype.metadata or {}  # where xarray notes the type of the objects
    if dtype.kind in "UT" or str in (declared.get("element_type"), declared.get("vlen")):
        return True
    first = var[(slice(0, 1),) * var.ndim].values
    return all(isinstance(value, str) for value in first.ravel().tolist())


def _native_chunks(var: xr.Variable) -> tuple[int, ...] | None:
    chunks = var.encoding.get("shards") or var.encoding.get("chunksizes") or var.encoding.get("chunks")
    return tuple(int(size) for size in chunks) if chunks and len(chunks) == var.ndim else None


def plain_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a type in native byte order, with one type for strings of any declared length."""
    dtype = np.dtype(dtype)
    return np.dtype(object) if dtype.kind in "UTO" else dtype.newbyteorder("=")


def to_plain(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return values in the type of the plan."""
    return np.asarray(values).astype(dtype, copy=False)


def read_box(dataset: xr.Dataset, name: str, box: tuple[tuple[int, int], ...]) -> np.ndarray[Any, Any]:
    """Read one box of one variable, raw."""
    return dataset.variables[name][tuple(slice(start, stop) for start, stop in box)].values
