"""How many objects and bytes arrays of many native chunks take."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr

from benchmarks.cases.history import stored
from benchmarks.places import Place, PlaceMaker
from benchmarks.results import Bar, CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import note

__all__ = ["run"]

_SMALL_CHUNK = 1024
"""Large enough that neither system inlines it."""


@dataclass(frozen=True, slots=True)
class _Figures:
    objects: int
    size: int
    equal: tuple[float, float]
    varied: tuple[float, float]


def _values(chunks: int, elements: int, random: np.random.Generator, *, varied: bool) -> np.ndarray:
    """Random chunks; `varied` ones end in a constant run of random length, so that each compresses to another size."""
    values = random.integers(1, 2**32, size=(chunks, elements), dtype=np.uint32)
    if varied:
        kept = random.integers(elements // 2 + elements // 8, elements, size=(chunks, 1))
        values[np.arange(elements) >= kept] = 7
    return values.reshape(-1)


def _fill(system: System, place: Place, count: int, chunk_bytes: int, *, varied: bool = False) -> None:
    """Commit an array of `count` chunks; `varied` chunks are compressed, so that their lengths differ."""
    elements = chunk_bytes // 4
    writer = system.writer(system.create(place))
    array = zarr.create_array(
        writer.store,
        name="data",
        shape=(elements * count,),
        chunks=(elements,),
        dtype="uint32",
        compressors="auto" if varied else None,
    )
    random = np.random.default_rng(1)
    step = max(1, min(count, (64 << 20) // chunk_bytes))
    for start in range(0, count, step):
        stop = min(count, start + step)
        array[start * elements : stop * elements] = _values(stop - start, elements, random, varied=varied)
    writer.commit()


def _memory(name: str, directory: Path) -> float:
    """Bytes that a fresh process gains by reading one chunk, and with it the array's manifest."""
    command = [sys.executable, "-m", "benchmarks.subject", "read-one", name, str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["bytes"])


def _metadata(directory: Path) -> int:
    """Bytes of all that is not chunk data: manifests travel inside other objects too when they are small."""
    return stored(directory)[0] - stored(directory / "chunks")[0]


def _manifest(system: System, places: PlaceMaker, references: int, *, varied: bool) -> tuple[float, float]:
    """Bytes of metadata a reference, on disk and in the memory of a reader."""
    note(f"objects: {references} native references by {system.name}{', varied' if varied else ''}")
    with places.fresh() as large, places.fresh() as tiny:
        _fill(system, large, references, _SMALL_CHUNK, varied=varied)
        _fill(system, tiny, 2, _SMALL_CHUNK, varied=varied)
        gained = _memory(system.name, large.directory) - _memory(system.name, tiny.directory)
        return _metadata(large.directory) / references, gained / references


def _count_objects(system: System, places: PlaceMaker, chunks: int) -> tuple[int, int]:
    """Objects and bytes after a commit of many chunks of 4 KiB."""
    note(f"objects: {chunks} chunks of 4 KiB by {system.name}")
    with places.fresh() as place:
        _fill(system, place, chunks, 4096)
        size, objects = stored(place.directory)
        return objects, size


def _bars(ours: _Figures, peer: _Figures, chunks: int, references: int) -> list[Bar]:
    objects = at_most(f"objects for {chunks:,} chunks of 4 KiB", ours.objects, 40, "objects", peer=f"{peer.objects:,}")
    bars = [objects]
    kinds = (("equal", ours.equal, peer.equal), ("varied", ours.varied, peer.varied))
    for kind, mine, theirs in kinds:
        what = f"all metadata of a dense native array of {references:,} chunks of {kind} length"
        unit = "B/reference"
        bars.append(at_most(f"{what}, on disk", mine[0], 4, unit, peer=human(theirs[0])))
        bars.append(at_most(f"{what}, in memory", mine[1], 24, unit, peer=human(theirs[1])))
    return bars


def run(setup: Setup) -> CaseResult:
    """Objects of many small chunks, and the manifest of a dense array."""
    result = CaseResult("objects", "Objects and manifests of many chunks")
    chunks, references = setup.scaled(50_000, 500), setup.scaled(100_000, 2_000)
    places = setup.quickest_place
    found: dict[str, _Figures] = {}
    for system in (setup.ours, IcechunkSystem()):
        objects, size = _count_objects(system, places, chunks)
        equal = _manifest(system, places, references, varied=False)
        varied = _manifest(system, places, references, varied=True)
        found[system.name] = _Figures(objects, size, equal, varied)
    result.bars += _bars(found[setup.ours.name], found["icechunk"], chunks, references)
    header = ["system", f"objects for {chunks:,} chunks", "bytes a chunk", "disk, equal", "memory, equal"]
    rows = [
        [name, f"{one.objects:,}", human(one.size / chunks), *map(human, (*one.equal, *one.varied))]
        for name, one in found.items()
    ]
    title = "Native chunks on a local directory; metadata in bytes a reference"
    result.tables.append(Table(title, [*header, "disk, varied", "memory, varied"], rows))
    result.notes.append(
        "Metadata is everything but chunk data, whatever object it is in. Chunks of *varied* length are compressed. "
        "Memory is what a fresh process gains (resident set) by opening the array and reading one chunk, less what "
        "the same costs with an array of two chunks."
    )
    return result
