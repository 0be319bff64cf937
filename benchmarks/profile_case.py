"""Where the time of writing or reading chunks goes: ``python -m benchmarks.profile_case read --chunk-bytes 4096``.

Zarr works in threads of its own, which a profile of the calling thread cannot see.  Here its coroutines run on a loop
in the main thread, and what it hands to threads runs at once on the same one.  Uploads in the background still have
threads of their own; since Python 3.12 the profile counts their calls too, so that the times of a write that overlaps
with uploads are only rough.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("ICECHUNK_LOG", "error")

import numpy as np
import zarr

from benchmarks.cases.chunks import ChunkLoad, make_data
from benchmarks.contenders import by_name
from benchmarks.pipelines import Pipeline, configured
from benchmarks.places import Place, PlaceMaker
from benchmarks.systems import System, Writer

_CHUNKS = {4096: 4000, 65536: 1000, 1 << 20: 64}


class _Inline(ThreadPoolExecutor):
    """Runs what is submitted at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the future carries it to whoever waits
            done.set_exception(error)
        return done


async def _profiled(profile: cProfile.Profile, action: Callable[[], Any]) -> Any:
    asyncio.get_running_loop().set_default_executor(_Inline(1))
    profile.enable()
    try:
        return await action()
    finally:
        profile.disable()


def _new_array(system: System, place: Place, load: ChunkLoad, data: np.ndarray) -> tuple[Any, Writer, zarr.Array[Any]]:
    handle = system.create(place)
    writer = system.writer(handle)
    array = zarr.create_array(
        writer.store,
        name="data",
        shape=data.shape,
        chunks=(load.elements,),
        dtype=data.dtype,
        compressors=None,
        filters=None,
        fill_value=0,
    )
    return handle, writer, array


def profile(system: System, part: str, load: ChunkLoad, places: PlaceMaker) -> cProfile.Profile:
    """Profile one part of a chunk case: "write", "commit" or "read"."""
    data = make_data(load)
    taken = cProfile.Profile()
    with places.fresh() as place:
        handle, writer, array = _new_array(system, place, load, data)
        if part == "write":
            asyncio.run(_profiled(taken, lambda: array.async_array.setitem(slice(None), data)))
            return taken
        array[:] = data
        if part == "commit":
            taken.runcall(writer.commit)
            return taken
        writer.commit()
        source = zarr.open_array(system.reader(system.open(place, handle)), path="data", mode="r")
        read = asyncio.run(_profiled(taken, lambda: source.async_array.getitem(slice(None))))
        if not np.array_equal(read, data):
            raise AssertionError(f"{system.name} did not give back what was written")
    return taken


def main() -> None:
    """Profile what the arguments ask for and print the costliest functions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_case", description=__doc__)
    parser.add_argument("part", choices=["write", "commit", "read"])
    parser.add_argument("--system", default="arraystore, no fsync", help="a contender's name as in the tables")
    parser.add_argument("--chunk-bytes", type=int, choices=list(_CHUNKS), default=4096)
    parser.add_argument("--pipeline", choices=["default", "fused"], default="fused")
    parser.add_argument("--sort", choices=["tottime", "cumulative"], default="tottime")
    parser.add_argument("--lines", type=int, default=30)
    given = parser.parse_args()
    load = ChunkLoad(given.chunk_bytes, _CHUNKS[given.chunk_bytes])
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, configured(Pipeline(given.pipeline, workers=1)):
        taken = profile(by_name(given.system), given.part, load, PlaceMaker("local", Path(directory)))
    stats = pstats.Stats(taken).strip_dirs()
    stats.sort_stats(given.sort).print_stats(given.lines)


if __name__ == "__main__":
    main()
