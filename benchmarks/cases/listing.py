"""Listing a group of many arrays: their names, their metadata, and zarr's own objects for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from benchmarks.places import Place, PlaceMaker
from benchmarks.results import CaseResult, Table, at_least, human
from benchmarks.setup import Setup
from benchmarks.systems import FloorSystem, IcechunkSystem, System
from benchmarks.timing import Stopwatch, interleaved, note

__all__ = ["run"]

NAMES, DOCUMENTS, OBJECTS = "names", "metadata documents", "zarr.Array objects"


def _fill(system: System, place: Place, arrays: int) -> object:
    handle = system.create(place)
    writer = system.writer(handle)
    group = zarr.create_group(writer.store)
    for number in range(arrays):
        group.create_array(f"array-{number:05d}", shape=(100, 100), chunks=(10, 10), dtype="float32")
    writer.commit()
    return handle


async def _names(store: Store) -> list[str]:
    return [name async for name in store.list_dir("") if name != "zarr.json"]


async def _documents(store: Store) -> list[bytes]:
    prototype = default_buffer_prototype()
    wanted = [(f"{name}/zarr.json", None) for name in await _names(store)]
    found = await store.get_partial_values(prototype, wanted)
    return [value.to_bytes() for value in found if value is not None]


def _objects(store: Store) -> int:
    return len(list(zarr.open_group(store, mode="r").arrays()))


def _list(system: System, place: Place, handle: object, arrays: int) -> Stopwatch:
    """List by a session just opened, so that nothing is remembered but what opening brings."""
    watch = Stopwatch()
    steps: dict[str, Callable[[Store], int]] = {
        NAMES: lambda store: len(sync(_names(store))),
        DOCUMENTS: lambda store: len(sync(_documents(store))),
        OBJECTS: _objects,
    }
    for part, step in steps.items():
        store = system.reader(system.open(place, handle))
        watch.start()
        found = step(store)
        watch.stop(part)
        if found != arrays:
            raise AssertionError(f"{system.name} lists {found} of {arrays} arrays")
    return watch


def _measure(setup: Setup, places: PlaceMaker, arrays: int) -> dict[str, dict[str, float]]:
    systems: list[System] = [setup.ours, IcechunkSystem(), FloorSystem()]
    runs: dict[str, Callable[[], Stopwatch]] = {}
    with places.fresh() as first, places.fresh() as second, places.fresh() as third:
        for system, place in zip(systems, (first, second, third), strict=True):
            runs[system.name] = partial(_list, system, place, _fill(system, place, arrays), arrays)
        samples = interleaved(runs, setup.rounds)
    return {part: {name: samples[name].median(part) * 1e3 for name in runs} for part in (NAMES, DOCUMENTS, OBJECTS)}


def run(setup: Setup) -> CaseResult:
    """List a thousand arrays of a group, as zarr asks for them."""
    result = CaseResult("listing", "Listing the arrays of a group")
    arrays = setup.scaled(1000, 50)
    note(f"listing: {arrays:,} arrays")
    found = _measure(setup, setup.quickest_place, arrays)
    peer, floor = IcechunkSystem().name, FloorSystem().name
    for part in (NAMES, DOCUMENTS):
        times = found[part]
        what = f"list {arrays:,} arrays of a group: {part}"
        result.bars.append(at_least(what, times[setup.ours.name], times[peer], 5, "ms"))
    header = ["what is listed", *[f"{name}, ms" for name in (setup.ours.name, peer, floor)]]
    rows = [[part, *[human(times[name]) for name in (setup.ours.name, peer, floor)]] for part, times in found.items()]
    result.tables.append(Table(f"{arrays:,} arrays of one group, on a local directory", header, rows))
    result.notes.append(
        "*Names* is the store's own listing, *metadata documents* that and every `zarr.json`, *zarr.Array objects* is "
        "`list(group.arrays())`. What a dict takes for that is zarr's own work on the metadata, which no store can "
        "take from it."
    )
    return result
