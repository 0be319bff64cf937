"""Whatever bytes stand in place of one object: what is read is what was committed, or an error of arraystore's own."""

from __future__ import annotations

import pytest

from tests.fuzz.hostile_bytes import DAMAGES, damages, search
from tests.fuzz.hostile_worlds import KINDS, kind_of, world

SEEDS = (1, 2)
"""So that two processes share the slice, which is the longest test of all."""
SLICE = 7


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_objects_are_read_as_what_was_committed_or_refused(seed: int, long_run: bool) -> None:
    report = search(seed, 1000 if long_run else SLICE)
    assert not report.findings, "\n".join(map(str, report.findings[:10]))
    assert report.counts["measured"]


def test_the_worlds_hold_objects_of_every_kind() -> None:
    assert {kind_of(key) for name in ("live", "trimmed") for key in world(name).objects} == set(KINDS)


def test_every_damage_happens_to_every_kind_and_is_the_same_in_every_run() -> None:
    made = list(damages(1, 400))
    assert {(damage.what, kind_of(damage.keys[0])) for damage in made} == {(w, k) for w in DAMAGES for k in KINDS}
    assert [str(damage) for damage in damages(1, 400)] == [str(damage) for damage in made]
    for damage in made:
        assert any(world(damage.world).objects.get(key) != data for key, data in damage.changed.items())
