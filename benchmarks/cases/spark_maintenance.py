"""Maintenance on Spark: verification beside reading, and the driver of a clone between two S3 servers."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.cluster_maintenance import measure_clone, measure_verify
from benchmarks.results import Bar, CaseResult, Table, at_most, human
from benchmarks.setup import Setup
from benchmarks.timing import note

__all__ = ["run_clone", "run_verify"]

_MB = 1e6
_BANDWIDTH = 0.9
_DRIVER_MB = 500


def run_verify(setup: Setup) -> CaseResult:
    """Read and verify in turns."""
    gigabytes, rounds = (0.05, 1) if setup.quick else (10, min(3, setup.rounds))
    note(f"spark-verify: {gigabytes} GB, {rounds} rounds")
    with setup.main_place.fresh() as place:
        found = measure_verify(gigabytes, rounds, place.directory)
    result = CaseResult("spark-verify", "Spark: verification")
    speeds = {"read": found.reading, "verify": found.verifying}
    shown = [f"{sorted(values)[rounds // 2] / _MB:.0f} MB/s" for values in speeds.values()]
    what = f"verify the chunks of {gigabytes} GB, beside tasks that only read them from the disk"
    result.bars.append(
        Bar(what, shown[1], shown[0], f"{found.ratio:.2f}", f"≥ {_BANDWIDTH}", found.ratio >= _BANDWIDTH)
    )
    rows = [
        [name, *(f"{value / _MB:.0f}" for value in speeds[name]), *(f"{value:.2f}" for value in cpu)]
        for name, cpu in (("read", found.reading_cpu), ("verify", found.verifying_cpu))
    ]
    each = [f"round {number + 1}" for number in range(rounds)]
    header = ["work", *(f"{name}, MB/s" for name in each), *(f"{name}, CPU s/GB" for name in each)]
    result.tables.append(Table("Bandwidth, and CPU seconds of all processes", header, rows))
    result.notes.append(
        "Chunks of 1 MiB, each an object of its own, four reads at a time in each of two tasks. Files are dropped from "
        "the page cache before each turn. CPU seconds a gigabyte say which bandwidth a task could verify at most."
    )
    return result


def run_clone(setup: Setup) -> CaseResult:
    """Clone between two servers with a driver that is killed; and the driver alone, of a million objects."""
    objects, forged = setup.scaled(100_000, 9_000), setup.scaled(1_000_000, 10_000)
    note(f"spark-clone: {objects} objects")
    found = measure_clone(objects)
    command = [sys.executable, "-m", "benchmarks.cluster_maintenance", "driver", "--objects", str(forged)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    result = CaseResult("spark-clone", "Spark: clones of many objects")
    what = "memory of the driver's Python that clones"
    result.bars.append(at_most(f"{what} {objects:,} objects", round(found.peak / _MB), _DRIVER_MB, "MB"))
    result.bars.append(at_most(f"{what} {forged:,} objects, copied by nobody", round(peak / _MB), _DRIVER_MB, "MB"))
    again = found.killed_at + found.objects - objects
    what = f"objects copied again after the driver was killed with {found.killed_at:,} of {objects:,} at the target"
    result.bars.append(at_most(what, max(0, again), objects // 20, "objects"))
    rows = [
        ["two S3 servers, from half on", human(found.objects), human(found.skipped), f"{found.seconds:.0f}"],
        ["the driver alone", human(forged), "0", f"{seconds:.0f}"],
    ]
    result.tables.append(Table("Objects of a kilobyte", ["work", "copied", "skipped", "s"], rows))
    result.notes.append(
        f"Two SeaweedFS servers, Spark and its workers share this machine: {found.requests / found.seconds:,.0f} "
        "requests a second in all. Each of two tasks has sixteen requests in flight, which a test counts. A million "
        "objects are not put to these servers, which would take most of an hour: what depends on their number is the "
        "driver, which the second line measures with workers that copy nothing."
    )
    return result
