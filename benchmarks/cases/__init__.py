"""The cases by name, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cases import (
    checksums,
    chunks,
    contention,
    forks,
    history,
    lifecycle,
    listing,
    many_virtual,
    objects,
    rebasing,
    references,
    requests,
    scale,
    spark_changes,
    spark_frames,
    spark_maintenance,
    spark_objects,
    spark_rechunk,
    spark_regions,
    spark_rows,
    switching,
    virtual,
)
from benchmarks.results import CaseResult
from benchmarks.setup import Setup

__all__ = ["CASES", "NEED_LOCAL", "NEED_SERVER", "ON_REQUEST"]

CASES: dict[str, Callable[[Setup], CaseResult]] = {
    "requests": requests.run,
    "large": references.run_commit,
    "history": history.run,
    "listing": listing.run,
    "objects": objects.run,
    "references": references.run_bulk,
    "virtual": virtual.run,
    "many-virtual": many_virtual.run,
    "switching": switching.run,
    "scale": scale.run,
    "chunks": chunks.run,
    "checksums": checksums.run,
    "contention": contention.run,
    "processes": contention.run_local,
    "rebasing": rebasing.run,
    "forks": forks.run,
    "lifecycle": lifecycle.run,
    "spark-rows": spark_rows.run,
    "spark-frames": spark_frames.run,
    "spark-regions": spark_regions.run,
    "spark-changes": spark_changes.run,
    "spark-objects": spark_objects.run,
    "spark-rechunk": spark_rechunk.run,
    "spark-verify": spark_maintenance.run_verify,
    "spark-clone": spark_maintenance.run_clone,
}

ON_REQUEST = frozenset({"many-virtual"})
"""Cases that run only if they are named: they take long."""

NEED_SERVER = frozenset({"requests", "contention", "rebasing", "switching"})
NEED_LOCAL = frozenset(
    {
        "large",
        "history",
        "listing",
        "objects",
        "references",
        "scale",
        "forks",
        "processes",
        "lifecycle",
        "many-virtual",
        "spark-rows",
        "spark-frames",
        "spark-regions",
        "spark-changes",
        "spark-objects",
        "spark-rechunk",
        "spark-verify",
        "spark-clone",
    }
)
