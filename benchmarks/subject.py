"""One measurement in a process of its own, for peak memory; prints one line of JSON."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr

import arraystore
from benchmarks import memory
from benchmarks.contenders import by_name
from benchmarks.places import Place

__all__ = ["make_references"]

PREFIX = "s3://example-bucket/model/"


def make_references(count: int, files: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Locations, offsets and lengths as a scan of `files` large files would give them."""
    names = [f"{PREFIX}output/year={1980 + number % 40}/part-{number:07d}.nc" for number in range(files)]
    per_file = count // files
    locations = [name for name in names for _ in range(per_file)]
    random = np.random.default_rng(5)
    lengths = random.integers(700_000, 1_000_000, size=count, dtype=np.uint64)
    starts = np.cumsum(lengths.reshape(files, per_file), axis=1) - lengths.reshape(files, per_file)
    return locations, (starts + np.uint64(8192)).reshape(-1), lengths


def _specs(locations: list[str], offsets: np.ndarray, lengths: np.ndarray) -> list[icechunk.VirtualChunkSpec]:
    return [
        icechunk.VirtualChunkSpec(index=[number], location=location, offset=offset, length=length)
        for number, (location, offset, length) in enumerate(
            zip(locations, offsets.tolist(), lengths.tolist(), strict=True)
        )
    ]


def write_references(name: str, method: str, count: int, files: int, directory: Path) -> dict[str, Any]:
    """Set `count` virtual references of one array and commit them."""
    system = by_name(name)
    locations, offsets, lengths = make_references(count, files)
    handle = system.create(Place("local", path=directory))
    # A small commit first, so that imports and thread pools do not count.
    first = system.writer(handle)
    zarr.create_array(first.store, name="warm", shape=(10,), chunks=(1,), dtype="uint8")[:] = 1
    first.commit()
    writer = system.writer(handle)
    store: Any = writer.store
    zarr.create_array(store, name="data", shape=(count,), chunks=(1,), dtype="uint8", compressors=None)
    base = memory.reset_peak()
    started = time.perf_counter()
    options: dict[str, Any] = {"validate_containers": False}
    if method == "columns":
        options["checksum"] = None
        rejected = store.set_virtual_refs_arr("data", (count,), locations, offsets, lengths, **options)
    else:
        if isinstance(store, arraystore.ArrayStore):  # Icechunk takes checksums of specs only
            options["checksum"] = None
        rejected = store.set_virtual_refs("data", _specs(locations, offsets, lengths), **options)
    set_by = time.perf_counter()
    writer.commit()
    done = time.perf_counter()
    if rejected:
        raise AssertionError(f"{name} rejected {len(rejected)} references")
    return {"set": set_by - started, "commit": done - set_by, "total": done - started, "bytes": memory.peak() - base}


def read_one(name: str, directory: Path) -> dict[str, Any]:
    """Open an array and read its first chunk."""
    system = by_name(name)
    base = memory.resident()
    store = system.reader(system.open(Place("local", path=directory), None))
    array = zarr.open_array(store, path="data", mode="r")
    value = np.asarray(array[: array.chunks[0]])
    if not value.all():
        raise AssertionError(f"{name} gave back a missing chunk")
    return {"bytes": memory.resident() - base}


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.subject")
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write-references")
    write.add_argument("name")
    write.add_argument("method", choices=["columns", "specs"])
    write.add_argument("count", type=int)
    write.add_argument("files", type=int)
    write.add_argument("directory", type=Path)
    read = commands.add_parser("read-one")
    read.add_argument("name")
    read.add_argument("directory", type=Path)
    given = parser.parse_args()
    if given.command == "read-one":
        found = read_one(given.name, given.directory)
    else:
        found = write_references(given.name, given.method, given.count, given.files, given.directory)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
