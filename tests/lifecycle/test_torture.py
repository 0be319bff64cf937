"""A slice of the torture: see `tests.lifecycle.torture`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.lifecycle.torture import Place, torture

EVERYBODY = ("acknowledged", "collection", "compaction", "expiry", "read of a snapshot")
MOST_SLICES = 5


def test_nothing_that_was_acknowledged_is_lost_whoever_is_killed_meanwhile(tmp_path: Path, long_run: bool) -> None:
    counts: Counter[str] = Counter()
    for number in range(MOST_SLICES):  # on a busy machine a slice may end before everybody has had a turn
        place = Place({"path": str(tmp_path / f"repository-{number}")}, tmp_path / f"journals-{number}")
        outcome = torture(place, 120 if long_run else 15)
        assert not outcome.problems, outcome.problems[:5]
        counts += outcome.counts
        if all(counts[what] for what in EVERYBODY):
            return
    raise AssertionError(counts)
