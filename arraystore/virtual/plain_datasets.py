"""Virtual datasets as plain values: metadata documents, columns of references, and the chunks of small variables.

So they come back from workers, whose bytes are not unpickled.  Variables in memory travel as a Zarr hierarchy, which
keeps their values, attributes and encoding, times of any calendar included.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import xarray as xr
from virtualizarr.manifests import ChunkManifest, ManifestArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.buffer.cpu import Buffer
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.storage import MemoryStore

from arraystore._runtime.engine import expect, unexpected
from arraystore.virtual.joining import plain_attribute

__all__ = ["from_plain", "to_plain"]

_WHAT = "a virtual dataset"


def to_plain(dataset: xr.Dataset) -> Any:
    """Return a dataset as plain values, for `from_plain`."""
    virtual = {str(name): each for name, each in dataset.variables.items() if isinstance(each.data, ManifestArray)}
    loaded = dataset.drop_vars(list(virtual)).drop_attrs(deep=False)
    return {
        "attrs": _json(dataset.attrs),
        "coords": [str(name) for name in dataset.coords],
        "order": [str(name) for name in dataset.variables],
        "loaded": _hierarchy(loaded) if loaded.variables else {},
        "virtual": {name: _references(each) for name, each in virtual.items()},
    }


def _json(attributes: Any) -> str:
    return json.dumps({str(name): plain_attribute(value) for name, value in attributes.items()})


def _hierarchy(dataset: xr.Dataset) -> dict[str, bytes]:
    store: dict[str, Any] = {}
    dataset.to_zarr(MemoryStore(store), mode="w", zarr_format=3, consolidated=False)
    return {key: buffer.to_bytes() for key, buffer in store.items()}


def _references(variable: xr.Variable) -> dict[str, Any]:
    data: Any = variable.data
    manifest = data.manifest
    metadata = replace(data.metadata, attributes={})
    paths, at = np.unique(manifest._paths.reshape(-1), return_inverse=True)
    return {
        "dims": [str(dim) for dim in variable.dims],
        "attrs": _json(variable.attrs),
        "encoding": _json({name: each for name, each in variable.encoding.items() if _is_plain(each)}),
        "metadata": metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes(),
        "grid": list(manifest.shape_chunk_grid),
        "paths": paths.tolist(),
        "path": at.astype("<i8").tobytes(),
        "offset": manifest._offsets.astype("<u8").tobytes(),
        "length": manifest._lengths.astype("<u8").tobytes(),
        "inlined": [[list(cell), bytes(chunk)] for cell, chunk in manifest._inlined.items()],
    }


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | np.ndarray | np.generic | None)


def from_plain(value: Any) -> xr.Dataset:
    """Return the dataset of untrusted plain values; raise `FormatError` if they are not one."""
    try:
        return _dataset(value)
    except (AttributeError, IndexError, KeyError, NotImplementedError, OverflowError, TypeError, ValueError) as error:
        raise unexpected(f"{_WHAT} ({type(error).__name__}: {error})") from error


def _dataset(value: Any) -> xr.Dataset:
    variables = {str(name): _variable(each) for name, each in value["virtual"].items()}
    if value["loaded"]:
        store = MemoryStore({str(key): Buffer.from_bytes(chunk) for key, chunk in value["loaded"].items()})
        variables |= {str(name): each.load() for name, each in _open(store).variables.items()}
    expect(variables.keys() == set(value["order"]), _WHAT)
    coords = [name for name in value["coords"] if name in variables]
    ordered = {name: variables[name] for name in value["order"]}
    return xr.Dataset(ordered, attrs=json.loads(value["attrs"])).set_coords(coords)


def _open(store: MemoryStore) -> xr.Dataset:
    return xr.open_dataset(store, engine="zarr", chunks=None, consolidated=False, zarr_format=3)  # type: ignore[arg-type]


def _variable(value: Any) -> xr.Variable:
    grid = tuple(value["grid"])
    locations = np.array(list(value["paths"]), dtype=np.dtypes.StringDType())
    at = np.frombuffer(value["path"], dtype="<i8")
    expect(len(at) == prod(grid) and bool(((at >= 0) & (at < len(locations))).all()), _WHAT)
    paths: Any = locations[at].reshape(grid)
    manifest = ChunkManifest.from_arrays(
        paths=paths,
        offsets=np.frombuffer(value["offset"], dtype="<u8").reshape(grid),
        lengths=np.frombuffer(value["length"], dtype="<u8").reshape(grid),
        inlined={tuple(cell): bytes(chunk) for cell, chunk in value["inlined"]},
    )
    metadata = ArrayV3Metadata.from_dict(json.loads(value["metadata"]))
    array: Any = ManifestArray(metadata, manifest)
    return xr.Variable(list(value["dims"]), array, json.loads(value["attrs"]), json.loads(value["encoding"]))
