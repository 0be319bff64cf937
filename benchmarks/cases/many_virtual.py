"""A hundred million virtual references of a thousand files: written, opened, and committed to once more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.cases.history import stored
from benchmarks.results import Bar, CaseResult, Table, human
from benchmarks.setup import Setup
from benchmarks.timing import note

__all__ = ["run"]

_MOST_BYTES = 4.0


def _measured(what: str, files: int, chunks: int, directory: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.many_virtual", what, str(files), str(chunks), str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def run(setup: Setup) -> CaseResult:
    """Measure once: it takes minutes, and the peer an hour and more."""
    result = CaseResult("many-virtual", "A hundred million virtual references")
    files, chunks = setup.scaled(1000, 10), setup.scaled(100_000, 100)
    count = files * chunks
    note(f"many-virtual: {files} files of {chunks} chunks")
    with setup.main_place.fresh() as place:
        written = _measured("write", files, chunks, place.directory)
        size = stored(place.directory / "repository")[0] / count
        used = _measured("use", files, chunks, place.directory)
    what = f"{count:,} virtual references of {files:,} files"
    result.bars.append(
        Bar(f"{what}: bytes a reference", human(size), "", "", f"≤ {_MOST_BYTES:g} bytes", size <= _MOST_BYTES)
    )
    header = ["step", "time, s", "peak memory of the process, MiB", "of it before, MiB"]
    memory = {
        name: [human(round(each[part] / 2**20)) for part in ("bytes", "base")]
        for name, each in (("write", written), ("use", used))
    }
    rows = [
        ["refer to a file after the other", human(written["write"]), *memory["write"]],
        ["commit", human(written["commit"]), *memory["write"]],
        ["open the repository and the array in a new process", human(used["open"]), *memory["use"]],
        ["read one chunk", human(used["read"]), *memory["use"]],
        ["write and commit one chunk", human(used["commit one"]), *memory["use"]],
    ]
    result.tables.append(Table(f"{what}, {human(size)} bytes each on disk", header, rows))
    result.notes.append(
        "One run, in two processes, each with one peak. It is left out of `make bench-all`: "
        "`python -m benchmarks --only many-virtual`. Icechunk was not run at this size."
    )
    return result
