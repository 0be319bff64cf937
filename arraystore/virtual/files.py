"""Files as virtual datasets: their format by content, and the parser and the store that read it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from virtualizarr import open_virtual_dataset
from virtualizarr.manifests import ManifestArray

from arraystore._chunks.container_storage import open_container
from arraystore._chunks.virtual_chunk_container import ContainerAccess, VirtualChunkContainer
from arraystore.errors import ArrayStoreError, NotFoundError
from arraystore.storage import LocalStorage, ObstoreStorage, Storage
from arraystore.storage.obstore_config import build_store
from arraystore.virtual.errors import VirtualizeError
from arraystore.virtual.one_file import OneFileRegistry

__all__ = ["open_virtual_file"]

_MAGIC = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"CDF\x01": "NetCDF-3",
    b"CDF\x02": "NetCDF-3",
    b"CDF\x05": "NetCDF-3",
    b"GRIB": "GRIB",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"II+\x00": "TIFF",
    b"MM\x00+": "TIFF",
}
_PARSERS = {
    "HDF5": ("virtualizarr.parsers", "HDFParser", "h5py"),
    "NetCDF-3": ("virtualizarr.parsers", "NetCDF3Parser", "virtualizarr"),
    "GRIB": ("gribberish.virtualizarr.parser", "GribberishParser", "gribberish"),
    "TIFF": ("virtual_tiff", "VirtualTIFF", "virtual-tiff"),
}
_USER_BLOCKS = (512, 1024, 2048)
"""Where the signature of HDF5 may be besides the start."""


def source_url(file: str | os.PathLike[str]) -> str:
    """Return a file as a URL: paths are made absolute, since readers are in other directories."""
    text = os.fspath(file)
    return text if "://" in text else f"file://{os.path.abspath(text)}"


def open_virtual_file(
    file: str | os.PathLike[str],
    container: VirtualChunkContainer | None = None,
    *,
    access: ContainerAccess = None,
    source_group: str | None = None,
    skip: Iterable[str] = (),
    loadable_variables: Iterable[str] | None = None,
) -> xr.Dataset:
    """Open a NetCDF, HDF5, GRIB or TIFF file as a virtual dataset of VirtualiZarr.

    Parameters
    ----------
    file
        Path or URL.
    container
        Place that the file is in; by default the directory of its URL.
    access
        What it is read with, as in ``authorize_virtual_chunk_access``.
    source_group
        Group within the file, of HDF5.
    skip
        Variables to leave out.
    loadable_variables
        Variables that are copied; those that are coordinates of their own dimension by default.

    Raises
    ------
    VirtualizeError
        If the file cannot be read, or has something that no Zarr array can refer to.
    """
    url = source_url(file)
    place = container or VirtualChunkContainer(url[: url.rindex("/") + 1])
    storage = access if isinstance(access, Storage) else open_container(place, access)
    kind = _format(storage, url, url[len(place.url_prefix) :])
    root = _root(url, storage)
    registry = OneFileRegistry(root, _store(storage, url), url[len(root) :].lstrip("/"))
    parser = partial(_parse, _parser(kind, url, source_group), registry.for_values())
    try:
        vds = open_virtual_dataset(
            url,
            registry,
            parser,
            drop_variables=None,
            loadable_variables=None if loadable_variables is None else list(loadable_variables),
        ).drop_vars(list(skip), errors="ignore")
        for variable in vds.variables.values():
            if not isinstance(variable.data, ManifestArray):
                variable.load()
    except ArrayStoreError:
        raise
    except Exception as error:
        raise VirtualizeError(
            f"{url!r} ({kind}) cannot be referred to: {type(error).__name__}: {error}; copy it instead (arraystore "
            "ingest), or leave variables out (skip)"
        ) from error
    return vds


def _format(storage: Storage, url: str, key: str) -> str:
    """Detect the format of a file by its content, whatever its name."""
    try:
        size = _read(storage, key, None)
        head = _read(storage, key, (0, min(size, 8)))
        for mark, name in _MAGIC.items():
            if head.startswith(mark):
                return name
        for start in _USER_BLOCKS:
            if start + 8 <= size and _read(storage, key, (start, start + 8)) == b"\x89HDF\r\n\x1a\n":
                return "HDF5"
    except NotFoundError:
        raise VirtualizeError(f"{url!r} does not exist, or may not be read") from None
    raise VirtualizeError(f"{url!r} is neither NetCDF, HDF5, GRIB nor TIFF; convert it first, or copy it")


def _read(storage: Storage, key: str, span: tuple[int, int] | None) -> Any:
    """Return bytes of a file, or its size."""
    if span is None:
        return storage.get_source_range_sync(key, 0, 0)[1].size
    return bytes(storage.get_source_range_sync(key, *span)[0])


def _parser(kind: str, url: str, source_group: str | None) -> Callable[..., Any]:
    module, name, package = _PARSERS[kind]
    try:
        made = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise VirtualizeError(
            f"{url!r} is {kind}, whose parser needs a package that is not installed ({error}): "
            f"pip install {package}, or pip install 'arraystore[virtual]'"
        ) from None
    if source_group is not None and kind != "HDF5":
        raise VirtualizeError(f"{url!r} is {kind}, of which no group can be chosen: leave source_group out")
    options: dict[str, dict[str, Any]] = {"HDF5": {"group": source_group}, "GRIB": {"collapse_groups": True}}
    parser: Callable[..., Any] = made(**options.get(kind, {}))
    return parser


def _parse(parser: Callable[..., Any], values: OneFileRegistry, url: str, registry: ObjectStoreRegistry[Any]) -> Any:
    """Parse a file, and let its values be read from it, whatever a parser of URLs makes of the locations."""
    manifests = parser(url=url, registry=registry)
    manifests._registry = values
    return manifests


def _root(url: str, storage: Storage) -> str:
    parts = urlsplit(url)
    return "file://" if isinstance(storage, LocalStorage) else f"{parts.scheme}://{parts.netloc}"


def _store(storage: Storage, url: str) -> Any:
    """Return the store of obstore that parsers read through, with the client settings of a storage."""
    import obstore.store

    if isinstance(storage, LocalStorage):
        return obstore.store.LocalStore()
    if not isinstance(storage, ObstoreStorage):
        raise VirtualizeError(
            f"{url!r} is in a {type(storage).__name__}, which parsers cannot read: they read directories, S3, GCS, "
            "Azure and web servers. Make references with kerchunk instead, and from_kerchunk"
        )
    config = storage.config
    if config.kind == "azure" and urlsplit(url).netloc != config.bucket:
        raise VirtualizeError(
            f"{url!r} names its account in front of its container, which parsers do not understand: use "
            "az://container/… and VirtualChunkContainer(…, account=…)"
        )
    return build_store(config, SimpleNamespace(_store=obstore.store), retries=True)
