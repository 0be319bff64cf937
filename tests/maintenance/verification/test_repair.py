"""Repair makes anew what the logs tell, leaves alone what they do not, and says which is which."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from functools import cache

import pytest

from arraystore import Repository
from arraystore._format.history import HistoryPage, decode_history, encode_history
from arraystore._format.snapshot import decode_checkpoint, encode_checkpoint
from arraystore._maintenance.verification.repair import RepairReport, repair
from arraystore._runtime import run
from arraystore.storage import MemoryStorage
from tests.commit.support import delete, keys, put
from tests.keys import history_of
from tests.maintenance.verification.support import (
    Damage,
    contents,
    copied,
    damage,
    empty,
    flipped,
    long_repository,
    missing,
    objects_of,
    small_repository,
    swapped,
    truncated,
    verified,
)
from tests.seams import context_of

EVERY = [missing, truncated, empty, flipped, swapped]


@cache
def _small() -> Repository:
    return small_repository()


@cache
def _long() -> Repository:
    return long_repository(135)


def _repaired(storage: MemoryStorage, *, dry_run: bool = False) -> RepairReport:
    context = context_of(Repository.open(storage))
    return run(repair(storage, context.repository, context.environment, dry_run=dry_run))


def test_there_is_nothing_to_repair_in_a_repository_without_damage() -> None:
    for repository in (_small(), _long()):
        storage = copied(repository.storage)
        before = objects_of(storage)
        report = _repaired(storage)
        assert (report.actions, report.left, report.exit_code) == ((), (), 0)
        assert objects_of(storage) == before


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("kind", ["snapshots/", "history/", "hints/"])
def test_what_is_derived_from_the_logs_is_made_anew(kind: str, how: Damage) -> None:
    for repository in (_small(), _long()):
        for key in keys(repository.storage, kind):
            storage = copied(repository.storage)
            if how is swapped and kind == "hints/":
                continue  # there is one hint
            damage(storage, key, how)
            report = _repaired(storage)
            assert key in {action.key for action in report.actions}
            assert (report.ok, report.left) == (True, ())
            assert verified(Repository.open(storage)).findings == ()


def test_all_checkpoints_pages_and_hints_at_once_are_made_anew() -> None:
    for repository in (_long(), _small()):
        storage = copied(repository.storage)
        # Without its checkpoint no session of a branch that starts from a snapshot can be opened.
        assert delete(storage, "snapshots/")
        delete(storage, "history/")
        delete(storage, "hints/")
        assert not verified(Repository.open(storage)).ok
        assert _repaired(storage).ok
        assert verified(Repository.open(storage)).findings == ()
    assert contents(Repository.open(storage)) == contents(_small())


def test_what_is_made_anew_is_what_was_there() -> None:
    before = objects_of(_long().storage)
    for kind in ("snapshots/", "history/"):
        for key in keys(_long().storage, kind):
            storage = copied(_long().storage)
            damage(storage, key, truncated)
            _repaired(storage)
            after = bytes(storage.get_sync(key))
            if kind == "history/":
                _, _, branch, level, index = key.split("/")
                old, new = [decode_history(key, d, branch, int(level), int(index)) for d in (before[key], after)]
                assert old.rows == new.rows
                assert set(old.checkpoints) <= set(new.checkpoints)
            else:
                assert decode_checkpoint(key, after).nodes == decode_checkpoint(key, before[key]).nodes


def _without_a_node(key: str, data: bytes) -> bytes:
    checkpoint = decode_checkpoint(key, data)
    nodes = tuple(node for node in checkpoint.nodes if node.path != "large")
    assert len(nodes) < len(checkpoint.nodes)
    return encode_checkpoint(key, _replaced(checkpoint, nodes=nodes))


def _of_another_time(key: str, data: bytes) -> bytes:
    checkpoint = decode_checkpoint(key, data)
    return encode_checkpoint(key, _replaced(checkpoint, time=checkpoint.time + 1))


def _without_pages(key: str, data: bytes) -> bytes:
    checkpoint = decode_checkpoint(key, data)
    return encode_checkpoint(key, _replaced(checkpoint, pages=checkpoint.pages[1:]))


def _replaced(checkpoint, **changes):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(checkpoint, **changes)


@pytest.mark.parametrize("change", [_without_a_node, _of_another_time, _without_pages])
def test_a_checkpoint_that_can_be_read_but_lies_is_found_and_replaced(change: Callable[[str, bytes], bytes]) -> None:
    storage = copied(_long().storage)
    key = next(
        key for key in keys(storage, "snapshots/") if len(decode_checkpoint(key, storage.get_sync(key)).pages) == 2
    )
    put(storage, key, change(key, bytes(storage.get_sync(key))))
    report = verified(Repository.open(storage))
    assert [finding.key for finding in report.errors] == [key]
    assert _repaired(storage).ok
    assert verified(Repository.open(storage)).findings == ()


def test_a_page_that_can_be_read_but_lies_is_found_and_replaced() -> None:
    storage = copied(_long().storage)
    key = keys(storage, history_of(storage))[0]
    page = decode_history(key, storage.get_sync(key), "main", 1, 0)
    put(storage, key, encode_history(HistoryPage("main", 1, 0, page.rows[:-1], page.checkpoints)))
    report = verified(Repository.open(storage))
    assert [finding.key for finding in report.errors] == [key]
    assert _repaired(storage).ok
    assert verified(Repository.open(storage)).findings == ()


@pytest.mark.parametrize("kind", ["chunks/", "manifests/", "refs/*/branch/main/000000000002", "transactions/"])
def test_what_only_a_writer_knew_is_left_as_it_is_and_told(kind: str) -> None:
    for key in fnmatch.filter(keys(_long().storage), kind + "*")[:5]:
        storage = copied(_long().storage)
        damage(storage, key, truncated)
        before = objects_of(storage)
        report = _repaired(storage)
        assert key in {finding.key for finding in report.left}
        assert not report.ok
        assert objects_of(storage)[key] == before[key]


def test_a_dry_run_tells_the_same_and_changes_nothing() -> None:
    storage = copied(_long().storage)
    for kind in ("snapshots/", "history/", "hints/"):
        damage(storage, keys(storage, kind)[0], truncated)
    before = objects_of(storage)
    planned = _repaired(storage, dry_run=True)
    assert objects_of(storage) == before
    done = _repaired(storage)
    assert {action.key for action in planned.actions} == {action.key for action in done.actions}
    assert len(planned.actions) == 3
    assert "would be" in str(planned)
    assert "would be" not in str(done)
