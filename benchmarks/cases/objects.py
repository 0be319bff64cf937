"""How many objects and bytes arrays of many native chunks take."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import zarr

from benchmarks.cases.history import stored
from benchmarks.places import Place
from benchmarks.results import Bar, CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.systems import IcechunkSystem, System
from benchmarks.timing import note

__all__ = ["run"]

_SMALL_CHUNK = 1024
"""Large enough that neither system inlines it."""


def _fill(system: System, place: Place, count: int, chunk_bytes: int) -> None:
    elements = chunk_bytes // 4
    writer = system.writer(system.create(place))
    array = zarr.create_array(
        writer.store, name="data", shape=(elements * count,), chunks=(elements,), dtype="uint32", compressors=None
    )
    random = np.random.default_rng(1)
    step = max(1, min(count, (64 << 20) // chunk_bytes))
    for start in range(0, count, step):
        stop = min(count, start + step)
        array[start * elements : stop * elements] = random.integers(
            1, 2**32, size=(stop - start) * elements, dtype=np.uint32
        )
    writer.commit()


def _memory(name: str, directory: Path) -> float:
    """Bytes that a fresh process gains by reading one chunk, and with it the array's manifest."""
    command = [sys.executable, "-m", "benchmarks.subject", "read-one", name, str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["bytes"])


def run(setup: Setup) -> CaseResult:
    """Objects of many small chunks, and the manifest of a dense array."""
    result = CaseResult("objects", "Objects and manifests of many chunks")
    rows: list[list[str]] = []
    chunks, references = setup.scaled(50_000, 500), setup.scaled(100_000, 2_000)
    objects: dict[str, int] = {}
    on_disk: dict[str, float] = {}
    in_memory: dict[str, float] = {}
    for system in (setup.ours, IcechunkSystem()):
        note(f"objects: {chunks} chunks of 4 KiB by {system.name}")
        with setup.quickest_place.fresh() as place:
            _fill(system, place, chunks, 4096)
            size, objects[system.name] = stored(place.directory)
        note(f"objects: {references} native references by {system.name}")
        with setup.quickest_place.fresh() as large, setup.quickest_place.fresh() as tiny:
            _fill(system, large, references, _SMALL_CHUNK)
            _fill(system, tiny, 2, _SMALL_CHUNK)
            on_disk[system.name] = stored(large.directory / "manifests")[0] / references
            gained = _memory(system.name, large.directory) - _memory(system.name, tiny.directory)
            in_memory[system.name] = gained / references
        rows.append(
            [
                system.name,
                f"{objects[system.name]:,}",
                f"{size / chunks:,.0f}",
                human(on_disk[system.name]),
                human(in_memory[system.name]),
            ]
        )
    ours, peer = setup.ours.name, "icechunk"
    result.bars.append(
        at_most(
            f"objects written for {chunks:,} chunks of 4 KiB", objects[ours], 40, "objects", peer=f"{objects[peer]:,}"
        )
    )
    what = f"manifest of a dense native array of {references:,} chunks"
    result.bars.append(at_most(f"{what}, on disk", on_disk[ours], 4, "B/reference", peer=human(on_disk[peer])))
    limit = 24
    result.bars.append(
        Bar(
            f"{what}, in memory",
            f"{human(in_memory[ours])} B/reference",
            human(in_memory[peer]),
            "",
            f"≤ {limit} B/reference",
            in_memory[ours] <= limit,
        )
    )
    header = ["system", f"objects for {chunks:,} chunks", "bytes a chunk", "manifest bytes/ref", "memory bytes/ref"]
    result.tables.append(Table("Native chunks on a local directory", header, rows))
    result.notes.append(
        "Memory is what a fresh process gains (resident set) by opening the array and reading one chunk, less what "
        "the same costs with an array of two chunks."
    )
    return result
