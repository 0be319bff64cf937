"""A mask of the whole earth, 21,600 x 43,200 cells: written in tiles, coarsened into a pyramid, drawn.

    python examples/land_mask.py

The mask is real (one cell for every 30 seconds of arc, in the package global-land-mask).  Executors write it tile by
tile; tiles of nothing but sea are equal to the fill value, and take no storage.  Then `map_chunks` counts the land in
blocks of cells, each level of the pyramid from the one below, still in the same session: one commit makes all of it
visible.  The levels are counts, which `scale_factor` turns into shares of land when they are read.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import zarr

import arraystore
import arraystore.spark as asp

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = (21600, 43200)
TILE = 1800
PICTURE = Path("demo") / "land_mask.png"


@dataclass(frozen=True)
class Level:
    """A level of the pyramid: each of its cells counts the land in `factor` x `factor` cells of the level below."""

    name: str
    below: str
    factor: int
    cells: int
    """Cells of the mask along the side of one of its own."""

    @property
    def shape(self) -> tuple[int, int]:
        return SHAPE[0] // self.cells, SHAPE[1] // self.cells


LEVELS = (
    Level("sixth", "mask", 20, 20),  # of a degree
    Level("half", "sixth", 3, 60),
    Level("degree_and_half", "half", 3, 180),
)


def block_sums(values: npt.NDArray[Any], factor: int) -> npt.NDArray[np.int32]:
    """Sum up blocks of `factor` x `factor` cells."""
    height, width = values.shape
    rows = values.reshape(height // factor, factor, width).sum(axis=1, dtype=np.int32)
    return rows.reshape(height // factor, width // factor, factor).sum(axis=2, dtype=np.int32)


def unpack(directory: Path) -> Path:
    """Unpack the mask once, so that every task can map the rows that it needs into memory."""
    found = importlib.util.find_spec("global_land_mask")
    if found is None or found.origin is None:
        raise SystemExit("this example needs the package global-land-mask: pip install global-land-mask")
    with zipfile.ZipFile(Path(found.origin).parent / "globe_combined_mask_compressed.npz") as packed:
        return Path(packed.extract("mask.npy", directory))


def create_arrays(store: Any) -> None:
    """The mask and the levels, nothing in them."""
    group = zarr.create_group(store, path="land")
    options: dict[str, Any] = {"dimension_names": ["y", "x"], "fill_value": 0}
    group.create_array("mask", shape=SHAPE, chunks=(TILE, TILE), dtype="bool", **options)
    for level in LEVELS:
        side = min(TILE, *level.shape)
        attributes = {"long_name": "share of land", "scale_factor": 1 / level.cells**2}
        group.create_array(
            level.name, shape=level.shape, chunks=(side, side), dtype="uint16", attributes=attributes, **options
        )


def write_mask(session: arraystore.Session, spark: SparkSession, source: Path) -> asp.WriteReport:
    """Write the mask, a band of tiles at a time."""
    path = str(source)

    def tiles(region: tuple[slice, ...]) -> npt.NDArray[np.bool_]:
        sea = np.load(path, mmap_mode="r")
        return ~np.asarray(sea[region])

    bands = [(slice(top, top + TILE), slice(0, SHAPE[1])) for top in range(0, SHAPE[0], TILE)]
    return asp.write_regions(session, "land/mask", bands, tiles, spark=spark, align="error")


def coarsen(session: arraystore.Session, spark: SparkSession, level: Level) -> asp.WriteReport:
    """Make a level of the pyramid from the one below: chunks become rows of counts, rows become chunks."""
    factor, name = level.factor, level.below

    def counts(chunk: Any) -> dict[str, npt.NDArray[Any]]:
        land = block_sums(chunk.arrays[name], factor)
        top, left = (part.start // factor for part in chunk.slices)
        y, x = np.nonzero(land)  # cells without land are the fill value anyway
        return {"y": top + y, "x": left + x, "land": land[y, x]}

    frame = asp.map_chunks(spark, session, f"land/{name}", counts, "y long, x long, land int", skip_missing=True)
    return asp.write_dataframe(frame, session, f"land/{level.name}", dims=["y", "x"], value="land")


def draw(store: Any, picture: Path) -> None:
    """Draw the finest level of the pyramid."""
    level = LEVELS[0]
    array = zarr.open_array(store, path=f"land/{level.name}", mode="r")
    share = np.asarray(array[...]) * array.attrs["scale_factor"]
    figure, axes = plt.subplots(figsize=(12, 6.2), layout="constrained")
    image = axes.imshow(share, cmap="YlGn", vmin=0, vmax=1, extent=(-180, 180, -90, 90), interpolation="antialiased")
    axes.set(title="Share of land, in cells of a sixth of a degree", xlabel="longitude", ylabel="latitude")
    figure.colorbar(image, ax=axes, shrink=0.8)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
    plt.close(figure)


def check(store: Any, source: Path) -> list[str]:
    """Compare every level with what numpy counts in the mask itself, and a few tiles with it cell by cell."""
    sea = np.load(source, mmap_mode="r")
    group = zarr.open_group(store, path="land", mode="r")
    band = 20 * LEVELS[-1].cells
    counted: dict[str, list[npt.NDArray[np.int32]]] = {level.name: [] for level in LEVELS}
    for top in range(0, SHAPE[0], band):
        land = (~sea[top : top + band]).view(np.uint8)
        for level in LEVELS:
            land = block_sums(land, level.factor)
            counted[level.name].append(land)
    wrong = [
        f"level {level.name} is not what numpy counts"
        for level in LEVELS
        if not np.array_equal(np.asarray(group[level.name][...]), np.concatenate(counted[level.name]))
    ]
    tiles = [(slice(top, top + TILE), slice(18000, 18000 + TILE)) for top in range(0, SHAPE[0], 4 * TILE)]
    wrong += [
        f"the tile at {tile[0].start} is not that of the source"
        for tile in tiles
        if not np.array_equal(np.asarray(group["mask"][tile]), ~sea[tile])
    ]
    return wrong


def tell(session: arraystore.Session) -> None:
    """How much of the mask takes storage."""
    array = zarr.open_array(session.store, path="land/mask", mode="r")
    print(f"{array.nchunks_initialized} of {array.nchunks} tiles have land; the others take no storage")


def main() -> int:
    """Write, coarsen, check, draw; 0 if all is right."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="land-mask-") as name:
        directory = Path(name)
        source = unpack(directory)
        print(f"unpacked {source.stat().st_size:,} bytes in {time.perf_counter() - began:.1f} s")
        repo = arraystore.Repository.create(arraystore.local_filesystem_storage(str(directory / "repository")))
        session = repo.writable_session("main")
        create_arrays(session.store)
        spark = asp.start_session()
        try:
            print(write_mask(session, spark, source))
            for level in LEVELS:
                print(coarsen(session, spark, level))
        finally:
            spark.stop()
        snapshot = session.commit("The land of the earth, and a pyramid of it")
        size = sum(path.stat().st_size for path in (directory / "repository").rglob("*") if path.is_file())
        print(f"one commit, {snapshot}; the repository has {size:,} bytes")
        seen = repo.readonly_session("main")
        tell(seen)
        wrong = check(seen.store, source)
        draw(seen.store, PICTURE)
    print("\n".join(wrong) if wrong else f"All levels are what numpy counts.  See {PICTURE}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
