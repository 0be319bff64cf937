"""Maintain a repository from a scheduled job: one call, one line of JSON, one exit status.

    python examples/gc_cron.py s3://bucket/prefix

Without a URL it maintains a small repository that it makes for the purpose, to show what it prints.  The same as
`arraystore maintain URL`, for jobs that are programs; change it to do what yours needs.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta

import zarr

import arraystore


def example() -> arraystore.Repository:
    """Make a repository with snapshots to expire and objects to collect."""
    repository = arraystore.Repository.create(arraystore.in_memory_storage())
    with repository.transaction("main", message="an array") as store:
        zarr.create_array(store, name="rain", shape=(1000,), chunks=(1000,), dtype="f8", compressors=None)
    for day in range(5):
        with repository.transaction("main", message=f"day {day}") as store:
            zarr.open_array(store, path="rain")[:] = day
    repository.set_retention("last 2")
    return repository


def main(repository: arraystore.Repository) -> int:
    options = arraystore.UpkeepOptions(
        policy=repository.get_retention(),  # what the repository says; None keeps every snapshot
        collect_after=timedelta(days=1),  # longer than the longest session that may be open
        compact_bytes=4 << 30,
        compact_seconds=900,
        verify_sample=200,
    )
    report = repository.maintain(options)
    print(json.dumps(report.to_dict(), default=str))
    return report.exit_code


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: gc_cron.py [URL]")
    if len(sys.argv) == 2:
        sys.exit(main(arraystore.Repository.open(arraystore.storage_from_url(sys.argv[1]))))
    sys.exit(main(example()))
