"""Slices of the torture: see `tests.torture.run`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.s3server import S3Server
from tests.torture.run import FEW, MANY, Outcome, directory_place, s3_place, torture

EVERYBODY = ("acknowledged", "collection", "compaction", "expiry", "read of a snapshot", "branches left")
MOST_SLICES = 4
RARE = 0.005
"""So that in a short slice everybody succeeds at something."""


def _everybody_had_a_turn(outcome: Outcome, counts: Counter[str]) -> bool:
    """Check a slice; on a busy machine it may end before everybody has had a turn."""
    assert not outcome.problems, outcome.problems[:5]
    counts += outcome.counts
    return all(counts[what] for what in EVERYBODY)


def test_nothing_that_was_acknowledged_is_lost_whoever_is_killed_on_a_directory_that_fails(
    tmp_path: Path, long_run: bool
) -> None:
    counts: Counter[str] = Counter()
    for number in range(MOST_SLICES):
        place = directory_place(tmp_path / str(number), rate=RARE)
        outcome = torture(place, 120 if long_run else 15, number, MANY if long_run else FEW)
        if _everybody_had_a_turn(outcome, counts):
            return
    raise AssertionError(counts)


def test_nothing_that_was_acknowledged_is_lost_on_s3_behind_a_proxy_that_loses_and_doubles(
    s3_server: S3Server, tmp_path: Path, long_run: bool
) -> None:
    counts: Counter[str] = Counter()
    for number in range(MOST_SLICES):
        with s3_place(s3_server, tmp_path / str(number), number, rate=RARE) as (place, _):
            outcome = torture(place, 120 if long_run else 15, number, MANY if long_run else FEW)
        if _everybody_had_a_turn(outcome, counts):
            return
    raise AssertionError(counts)
