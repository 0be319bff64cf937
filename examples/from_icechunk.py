"""Take an Icechunk repository over, and run the same analysis on both.

    python examples/from_icechunk.py

The repository has what years of use leave behind: months appended one after the other, a correction, a branch with
another calibration, tags, virtual chunks of a file that others own, and an expiry.  The import takes every snapshot,
with its time and its old id.  Then one function of plain zarr runs on each snapshot of both repositories.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("ICECHUNK_LOG", "error")  # it logs that a local directory is not safe for concurrent commits

import icechunk
import numpy as np
import zarr

import arraystore
from arraystore.copying import import_icechunk

DAYS, ROWS, COLUMNS = 30, 40, 60


def field(month: int) -> np.ndarray[Any, Any]:
    """Return a month of temperatures."""
    rng = np.random.default_rng(month)
    warm = 15 - 10 * np.cos(2 * np.pi * month / 12)
    return (warm + rng.normal(size=(DAYS, ROWS, COLUMNS))).astype("f4")


def append(repository: icechunk.Repository, branch: str, month: int, offset: float = 0.0) -> str:
    """Commit another month."""
    session = repository.writable_session(branch)
    array = zarr.open_array(session.store, path="temperature")
    array.append(field(month) + np.float32(offset))
    return session.commit(f"month {month}", {"month": month, "source": "station network"})


def make_source(place: Path) -> icechunk.Repository:
    """Make the Icechunk repository, and the file that some of its chunks are in."""
    files = place / "files"
    files.mkdir()
    heights = np.random.default_rng(0).integers(0, 3000, (ROWS, COLUMNS)).astype("i4")
    (files / "heights.bin").write_bytes(b"a header " + heights.tobytes())
    prefix = f"file://{files}/"

    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(files)))
    )
    storage = icechunk.local_filesystem_storage(str(place / "icechunk"))
    access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    repository = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)

    session = repository.writable_session("main")
    root = zarr.group(session.store)
    root.attrs["title"] = "temperature of the valley"
    root.create_array("temperature", shape=(0, ROWS, COLUMNS), chunks=(DAYS, 20, 20), dtype="f4")
    root.create_array("height", shape=(ROWS, COLUMNS), chunks=(ROWS, COLUMNS), dtype="i4", compressors=None)
    session.store.set_virtual_ref("height/c/0/0", prefix + "heights.bin", offset=9, length=heights.nbytes)
    session.commit("empty arrays, and heights that stay where they are")

    for month in range(1, 4):
        append(repository, "main", month)
    border = datetime.now(UTC)
    append(repository, "main", 4)
    repository.create_branch("calibrated", repository.lookup_branch("main"))
    for month in range(5, 7):
        append(repository, "main", month)
        append(repository, "calibrated", month, offset=0.25)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="temperature")[60:90] = field(3) - 1
    session.commit("sensor 7 was read wrongly in March")
    repository.create_tag("v1", repository.lookup_branch("main"))
    append(repository, "main", 7)
    repository.set_metadata({"owner": "valley", "license": "CC-BY-4.0"})
    repository.expire_snapshots(older_than=border)  # the first months are in no history any more
    return repository


def analyse(store: Any) -> dict[str, float]:
    """Return statistics of a snapshot, by nothing but zarr."""
    root = zarr.open_group(store, mode="r")
    temperature, height = root["temperature"], root["height"]
    assert isinstance(temperature, zarr.Array)
    assert isinstance(height, zarr.Array)
    values, meters = np.asarray(temperature[:]), np.asarray(height[:])
    mean = values.mean(axis=0)
    lapse = float(np.polyfit(meters.ravel(), mean.ravel(), 1)[0])
    return {"days": float(len(values)), "mean": float(values.mean(dtype="f8")), "lapse": lapse}


def same(one: dict[str, float], other: dict[str, float]) -> bool:
    """Tell whether all statistics are equal, to the last bit."""
    return one == other


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        theirs = make_source(place)

        started = time.perf_counter()
        storage = arraystore.local_filesystem_storage(place / "arraystore")
        report = import_icechunk(theirs, storage)
        took = time.perf_counter() - started
        print(
            f"imported {report.snapshots} snapshots in {took:.2f} s: {report.chunks} chunks, {report.virtual} virtual"
        )

        files = f"file://{place / 'files'}/"
        access = {files: arraystore.local_filesystem_storage(place / "files")}
        ours = arraystore.Repository.open(storage, authorize_virtual_chunk_access=access)

        wrong = 0
        print(f"\n{'branch':<11} {'old id':<20} {'new id':<20} {'written (UTC)':<19}  {'days':>4} {'mean':>8}  same")
        for branch in sorted(theirs.list_branches()):
            for info in list(theirs.ancestry(branch=branch))[:-1]:  # a repository begins with an empty one
                before = analyse(theirs.readonly_session(snapshot_id=info.id).store)
                after = analyse(ours.readonly_session(snapshot_id=info.id).store)  # the old id leads to the copy
                copy = ours.lookup_snapshot(info.id)
                then = ours.readonly_session(branch, as_of=info.written_at)
                good = same(before, after) and copy.written_at == info.written_at and then.snapshot_id == copy.id
                wrong += not good
                when, days, mean = (
                    f"{copy.written_at:%Y-%m-%d %H:%M:%S}",
                    f"{after['days']:.0f}",
                    f"{after['mean']:.4f}",
                )
                print(f"{branch:<11} {info.id} {copy.id} {when}  {days:>4} {mean:>8}  {'yes' if good else 'NO'}")
        tagged = same(analyse(theirs.readonly_session(tag="v1").store), analyse(ours.readonly_session(tag="v1").store))
        settings = ours.get_metadata() == theirs.get_metadata()
        print(f"\ntag v1: {'same' if tagged else 'DIFFERENT'}; metadata: {'same' if settings else 'DIFFERENT'}")

        append(theirs, "main", 8)
        again = import_icechunk(theirs, storage)
        follows = same(analyse(theirs.readonly_session("main").store), analyse(ours.readonly_session("main").store))
        verdict = "same" if follows else "DIFFERENT"
        print(f"a month later: {again.snapshots} snapshot more, {again.chunks} chunks, {verdict}")
        return int(bool(wrong) or not (tagged and settings and follows and again.snapshots == 1))


if __name__ == "__main__":
    sys.exit(main())
