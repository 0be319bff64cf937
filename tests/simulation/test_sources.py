"""Sources of virtual chunks in runs: references are read as they were, or refused since their source has changed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checker import check
from tests.simulation.checker.sources import Sources
from tests.simulation.observations import SourceLost, SourceVersion, ValueRead
from tests.simulation.play import Play, array
from tests.simulation.runs.run import simulate

URL = "sources://simulated/x"


def test_chunks_of_sources_are_read_as_they_were_or_refused_and_both_happen() -> None:
    counts: Counter[str] = Counter()
    for seed in range(6):
        report = simulate(seed, profile="virtual")
        assert report.violations == ()
        counts["refused"] += sum(isinstance(seen, SourceLost) for seen in report.notes.seen)
        reads = [seen for seen in report.notes.seen if isinstance(seen, ValueRead) and "/c/" in seen.key]
        counts["read"] += sum(b"\0" in (seen.data or b"") for seen in reads)  # as only sources have
    assert counts["refused"] > 10
    assert counts["read"] > 10


def _told(versions: list[SourceVersion], url: str = URL, key: str = "a/c/0") -> set[str]:
    """Return the rules that are broken where a reader was told that the source of a chunk has changed."""
    play = Play()
    play.open("found").create("").create("a", array((4,))).write("a", (0,)).commit()
    snapshot = play.repo.lookup_branch("main")
    play.notes.see(SourceLost("reader", snapshot, key, url, 5.0, 6.0))
    return {violation.rule for violation in check(play.objects(), play.notes, versions)}


def test_whoever_is_told_in_vain_that_a_source_has_changed_is_found() -> None:
    chunk = b"found a (0,) 2"
    there = SourceVersion(URL, 1.0, b"before " + chunk + b" behind")
    assert _told([there, SourceVersion(URL, 4.0, None)]) == set()
    assert _told([there, SourceVersion(URL, 4.0, b"other")]) == set()
    assert _told([there]) == {"reads"}
    assert _told([there, SourceVersion(URL, 7.0, b"too late")]) == {"reads"}
    assert _told([there, SourceVersion(URL, 4.0, b"other")], url=URL + "y") == {"reads"}
    assert _told([there, SourceVersion(URL, 4.0, b"other")], key="a/c/1") == {"reads"}


def test_a_source_is_read_in_the_state_that_its_reference_says() -> None:
    sources = Sources([SourceVersion(URL, 1.25, b"older"), SourceVersion(URL, 2.5, b"newer")])
    assert sources.read(URL, "", 1_250_000, 1, 3) == b"ld"
    assert sources.read(URL, "", 2_500_000, 1, 3) == b"ew"
    with pytest.raises(ValueError, match="never was"):
        sources.read(URL, "an entity tag of nothing", 0, 1, 3)
