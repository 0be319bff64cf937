"""Slices of the torture: see `tests.lifecycle.torture`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.lifecycle.torture import FEW, MANY, RIGHT, Outcome, directory_place, s3_place, torture
from tests.s3server import S3Server

EVERYBODY = ("acknowledged", "collection", "compaction", "expiry", "read of a snapshot", "branches left")
MOST_SLICES = 4


def _everybody_had_a_turn(outcome: Outcome, counts: Counter[str]) -> bool:
    """Check a slice; on a busy machine it may end before everybody has had a turn."""
    assert not outcome.problems, outcome.problems[:5]
    counts += outcome.counts
    return all(counts[what] for what in EVERYBODY)


def test_nothing_that_was_acknowledged_is_lost_whoever_is_killed_meanwhile(tmp_path: Path, long_run: bool) -> None:
    counts: Counter[str] = Counter()
    for number in range(MOST_SLICES):
        place = directory_place(tmp_path / str(number), rate=0)
        outcome = torture(place, 120 if long_run else 15, number, MANY if long_run else FEW, RIGHT)
        if _everybody_had_a_turn(outcome, counts):
            return
    raise AssertionError(counts)


def test_the_same_on_an_s3_server_from_many_processes(s3_server: S3Server, tmp_path: Path, long_run: bool) -> None:
    counts: Counter[str] = Counter()
    for number in range(MOST_SLICES):
        with s3_place(s3_server, tmp_path / str(number), number, rate=0) as (place, _):
            outcome = torture(place, 120 if long_run else 15, number, MANY if long_run else FEW, RIGHT)
        if _everybody_had_a_turn(outcome, counts):
            return
    raise AssertionError(counts)
