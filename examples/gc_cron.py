"""Maintain a repository from a scheduled job: one call, one line of JSON, one exit status.

    python examples/gc_cron.py s3://bucket/prefix

The same as `arraystore maintain URL`, for jobs that are programs; change it to do what yours needs.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta

import arraystore


def main(url: str) -> int:
    repository = arraystore.Repository.open(arraystore.storage_from_url(url))
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
    if len(sys.argv) != 2:
        sys.exit("usage: gc_cron.py URL")
    sys.exit(main(sys.argv[1]))
