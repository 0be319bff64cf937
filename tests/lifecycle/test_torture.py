"""A slice of the torture: see `tests.lifecycle.torture`."""

from __future__ import annotations

from pathlib import Path

from tests.lifecycle.torture import Place, torture


def test_nothing_that_was_acknowledged_is_lost_whoever_is_killed_meanwhile(tmp_path: Path, long_run: bool) -> None:
    place = Place({"path": str(tmp_path / "repository")}, tmp_path / "journals")
    outcome = torture(place, 120 if long_run else 20)
    assert not outcome.problems, outcome.problems[:5]
    for what in ("acknowledged", "collection", "compaction", "expiry", "read of a snapshot"):
        assert outcome.counts[what] > 0, outcome.counts
