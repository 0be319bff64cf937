"""Search on with fresh seeds, for as long as it is told: simulation, fuzzing, hostile bytes and torture in turn.

    python -m tests.proof --minutes 60

Seeds are drawn from the clock and printed with the command that they belong to, so that what fails can be repeated.
The first failure ends the search, with the status of the command that failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

SHARES = {
    "simulation": 0.5,
    "torture on a directory": 0.15,
    "torture on s3": 0.15,
    "fuzzing": 0.1,
    "hostile bytes": 0.1,
}
"""What each kind of search gets of the time."""

_MUTATIONS_A_MINUTE = 20
_BATCH = 1_000_000
"""Seeds of one search do not reach those of the next one, a second later."""


def commands(minutes: float, seed: int) -> list[Sequence[str]]:
    """Return the commands of a search that takes about so many minutes."""
    share = {kind: f"{part * minutes:.2f}" for kind, part in SHARES.items()}
    mutations = max(20, round(SHARES["hostile bytes"] * minutes * _MUTATIONS_A_MINUTE))
    chance = ["--seed", str(seed)]
    start = ["--start", str(seed * _BATCH)]
    torture = ["tests.torture.run", "--few", *chance]
    return [
        ["tests.simulation", "loop", "--profile", "all", "--jobs", "2", "--minutes", share["simulation"], *start],
        [*torture, "--place", "directory", "--minutes", share["torture on a directory"]],
        [*torture, "--place", "s3", "--minutes", share["torture on s3"]],
        ["tests.fuzz", "--minutes", share["fuzzing"], *chance],
        ["tests.fuzz.hostile_bytes", "--mutations", str(mutations), *chance],
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all searches; returns the status of the first that fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description="Search on with fresh seeds.")
    parser.add_argument("--minutes", type=float, default=30.0, help="about how long, all together (default: 30)")
    parser.add_argument("--seed", type=int, help="of all chance; from the clock by default")
    options = parser.parse_args(arguments)
    seed = int(time.time()) if options.seed is None else options.seed
    for command in commands(options.minutes, seed):
        sys.stdout.write(f"== python -m {' '.join(command)}\n")
        sys.stdout.flush()
        status = subprocess.run([sys.executable, "-m", *command], check=False).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
