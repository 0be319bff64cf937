"""Rewrites of layers with chunks that a commit hides meanwhile: their packs may go, and verification knows that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from arraystore import Repository
from arraystore._maintenance.fold import fold
from tests.commit.support import delete, keys
from tests.maintenance.model import now
from tests.maintenance.verification.support import verified
from tests.maintenance.worlds import Meanwhile, World, run_alone, tip_of, with_rows
from tests.seams import context_of


def _expire_and_collect(world: World, moment: datetime) -> None:
    Repository.open(world.storage).expire_snapshots(now())
    assert Repository.open(world.storage).garbage_collect(moment, full=True).chunks_deleted


def _folded_while(world: World, happens: Callable[[], object]) -> None:
    """Fold all layers, and let something happen between their preparation and the record that names them."""
    storage = Meanwhile(world.storage, "put_if_absent", "/branch/main/", happens)
    context = context_of(Repository.open(storage))
    tip = tip_of(storage)
    assert run_alone(fold(context.log("main"), tip, context.reader)).sequence > tip.sequence
    assert storage.happened


@pytest.mark.parametrize("collected", ["before the record", "after it"])
def test_packs_of_chunks_that_were_hidden_before_their_layer_was_rewritten_are_not_missed(collected: str) -> None:
    world = with_rows(rows=12)
    moment = now()

    def hide() -> None:
        world.write_row(7)
        if collected == "before the record":
            _expire_and_collect(world, moment)

    _folded_while(world, hide)
    if collected == "after it":
        _expire_and_collect(world, moment)
    assert verified(world.repository).findings == ()
    assert verified(world.repository, "chunks").findings == ()
    world.check(snapshots=())


def test_packs_of_chunks_that_a_later_commit_hides_are_not_missed_once_the_snapshot_before_it_has_expired() -> None:
    world = with_rows(rows=12)
    _folded_while(world, lambda: None)
    world.write_row(7)
    _expire_and_collect(world, now())
    assert verified(world.repository, "chunks").findings == ()
    world.check(snapshots=())


def test_a_missing_pack_of_a_chunk_that_a_rewritten_layer_shows_is_found() -> None:
    world = with_rows(rows=12)
    _folded_while(world, lambda: world.write_row(7))
    _expire_and_collect(world, now())
    found = {key: _errors_without(world, key) for key in keys(world.storage, "chunks/")}
    assert len(found) == 12
    assert found == {key: [key] for key in found}


def _errors_without(world: World, key: str) -> list[str]:
    """Return the keys of all errors while an object is missing."""
    data = bytes(world.storage.get_sync(key))
    delete(world.storage, key)
    errors = [finding.key for finding in verified(world.repository).errors]
    world.storage.put_sync(key, data)
    return errors
