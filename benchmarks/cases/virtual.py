"""A virtual dataset of VirtualiZarr, of a thousand files of a thousand chunks each: written, committed and opened."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import icechunk
import numpy as np
import xarray as xr
from virtualizarr.manifests import ChunkManifest, ManifestArray
from virtualizarr.manifests.utils import create_v3_array_metadata

import arraystore
from arraystore.virtual import write_virtual_dataset
from benchmarks.cases.history import stored
from benchmarks.places import Place, PlaceMaker
from benchmarks.results import Bar, CaseResult, Table, at_least, human
from benchmarks.setup import Setup
from benchmarks.timing import Samples, Stopwatch, interleaved, note

__all__ = ["references", "run"]

PREFIX = "s3://example-bucket/model/"
_SIDE = 1000
_MOST_BYTES = 4.0


def references(files: int) -> xr.Dataset:
    """Return a dataset of references to a thousand chunks, of different lengths, of each of so many files."""
    shape = files, _SIDE
    names = [f"{PREFIX}output/part-{number:07}.nc" for number in range(files)]
    lengths = np.random.default_rng(5).integers(700_000, 1_000_000, size=shape, dtype=np.uint64)
    manifest = ChunkManifest.from_arrays(
        paths=np.repeat(np.array(names, dtype=np.dtypes.StringDType()), _SIDE).reshape(shape),
        offsets=np.cumsum(lengths, axis=1) - lengths + np.uint64(8192),
        lengths=lengths,
        validate_paths=False,
    )
    metadata = create_v3_array_metadata(
        shape=(files, _SIDE * 1000), data_type=np.dtype("f4"), chunk_shape=(1, 1000), fill_value=0.0
    )
    return xr.Dataset({"rain": (("time", "x"), ManifestArray(metadata, manifest))})


def _ours(place: Place, vds: xr.Dataset, watch: Stopwatch) -> Any:
    storage = arraystore.local_filesystem_storage(place.directory, fsync=False)
    config = arraystore.RepositoryConfig(virtual_chunk_containers=(arraystore.VirtualChunkContainer(PREFIX),))
    session = arraystore.Repository.create(storage, config).writable_session("main")
    watch.start()
    write_virtual_dataset(vds, session, checksum=None)
    watch.stop("write")
    watch.start()
    session.commit("virtual")
    watch.stop("commit")
    return lambda: arraystore.Repository.open(storage).readonly_session("main").store


def _peer(place: Place, vds: xr.Dataset, watch: Stopwatch) -> Any:
    storage = icechunk.local_filesystem_storage(str(place.directory))
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(PREFIX, icechunk.s3_store(region="us-east-1")))
    session = icechunk.Repository.create(storage, config).writable_session("main")
    watch.start()
    vds.vz.to_icechunk(session.store)
    watch.stop("write")
    watch.start()
    session.commit("virtual")
    watch.stop("commit")
    return lambda: icechunk.Repository.open(storage).readonly_session("main").store


def _round_trip(write: Callable[..., Any], files: int, places: PlaceMaker) -> Stopwatch:
    vds, watch = references(files), Stopwatch()
    with places.fresh() as place:
        reopen = write(place, vds, watch)
        started = time.perf_counter()
        dataset = xr.open_zarr(reopen(), consolidated=False)
        assert dataset.rain.shape == (files, _SIDE * 1000)
        watch.add("open", time.perf_counter() - started)
        watch.add("total", sum(watch.parts[part] for part in ("write", "commit", "open")))
        watch.add("disk", stored(place.directory)[0] / (files * _SIDE))
    return watch


def run(setup: Setup) -> CaseResult:
    """Time the round trip of a virtual dataset, and measure what it takes on disk."""
    result = CaseResult("virtual", "A virtual dataset of VirtualiZarr")
    files = setup.scaled(1000, 10)
    note(f"virtual: {files} files of {_SIDE} chunks")
    runs = {name: partial(_round_trip, way, files, setup.main_place) for name, way in _WAYS.items()}
    found = interleaved(runs, setup.rounds)
    ours, theirs = found["arraystore"], found["icechunk"]
    what = f"write, commit and open a virtual dataset of {files:,} files of {_SIDE:,} chunks"
    result.bars.append(at_least(what, ours.median("total"), theirs.median("total"), 1.0, "s"))
    size = ours.median("disk")
    result.bars.append(
        Bar(
            f"{what}: bytes a reference",
            human(size),
            human(theirs.median("disk")),
            f"{theirs.median('disk') / size:.2f}",
            f"≤ {_MOST_BYTES:g} bytes",
            size <= _MOST_BYTES,
        )
    )
    header = ["way", "write, s", "commit, s", "open, s", "total, s", "bytes a reference on disk"]
    result.tables.append(Table(what, header, [_row(label, samples) for label, samples in found.items()]))
    return result


_WAYS: dict[str, Callable[..., Any]] = {"arraystore": _ours, "icechunk": _peer}


def _row(label: str, samples: Samples) -> list[str]:
    return [label, *(human(samples.median(part)) for part in ("write", "commit", "open", "total", "disk"))]
