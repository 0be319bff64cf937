"""Histories whose way back expired before anything could lead on from it: they go on at what is left before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import arraystore as ars
from arraystore._history import pinning
from tests.commit.support import commit_number, commit_rows, create_repository, put_number

TAGGED, LEFT = 2, 5
"""Rows of a snapshot that a tag keeps, and of one that nothing keeps."""


@pytest.fixture
def repository() -> ars.Repository:
    return create_repository(ars.in_memory_storage())


def _ids(repository: ars.Repository, branch: str) -> list[str]:
    return [each.id for each in repository.ancestry(branch=branch)]


def _parents(repository: ars.Repository, branch: str) -> list[tuple[str, str | None]]:
    return [(each.id, each.parent_id) for each in repository.ancestry(branch=branch)]


def _in_a_row(*ids: str) -> list[tuple[str, str | None]]:
    return list(zip(ids, [*ids[1:], None], strict=True))


def _flush(repository: ars.Repository) -> str:
    session = repository.writable_session("main")
    put_number(session, 0, 1000)
    return session.flush("on no branch")


def _create_while_it_expires(
    repository: ars.Repository,
    monkeypatch: pytest.MonkeyPatch,
    branch: str,
    snapshot: str,
    happens: Callable[[], object] = lambda: None,
) -> None:
    """Create a branch at a snapshot that expires after it was looked whether it is kept."""

    async def check(*arguments: Any) -> None:
        patch.undo()
        await check_kept(*arguments)
        await asyncio.to_thread(happens)
        await (await ars.Repository.open_async(repository.storage)).expire_snapshots_async(datetime.now(UTC))

    check_kept = pinning.check_kept
    with monkeypatch.context() as patch:
        patch.setattr(pinning, "check_kept", check)
        repository.create_branch(branch, snapshot)


def test_what_was_flushed_leads_to_what_is_left_before_its_base(repository: ars.Repository) -> None:
    ids = commit_rows(repository, 0, LEFT)
    first = _ids(repository, "main")[-1]
    flushed = _flush(repository)
    repository.create_tag("kept", ids[TAGGED])
    newer = commit_rows(repository, LEFT + 1, LEFT + 5)
    repository.create_tag("newer", newer[2])
    repository.expire_snapshots(datetime.now(UTC))
    repository.create_branch("side", flushed)
    assert _parents(repository, "main") == _in_a_row(newer[-1], newer[2], ids[TAGGED], first)
    assert _parents(repository, "side") == _in_a_row(flushed, ids[TAGGED], first)


def test_a_branch_that_is_made_while_its_snapshot_expires_shows_what_is_left_before_that(
    repository: ars.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = commit_rows(repository, 0, 2 * LEFT)
    first = _ids(repository, "main")[-1]
    repository.create_tag("kept", ids[TAGGED])
    repository.create_tag("newer", ids[LEFT + 2])
    _create_while_it_expires(repository, monkeypatch, "side", ids[LEFT])
    assert _parents(repository, "side") == _in_a_row(ids[LEFT], ids[TAGGED], first)


def test_a_branch_that_is_made_while_a_reset_and_an_expiry_leave_its_snapshot_shows_what_is_left_before_that(
    repository: ars.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = commit_rows(repository, 0, LEFT)
    first = _ids(repository, "main")[-1]
    repository.create_tag("kept", ids[TAGGED])

    def reset() -> None:
        other = ars.Repository.open(repository.storage)
        other.reset_branch("main", ids[0])
        commit_rows(other, LEFT + 1, LEFT + 3)

    _create_while_it_expires(repository, monkeypatch, "side", ids[LEFT], reset)
    assert _parents(repository, "side") == _in_a_row(ids[LEFT], ids[TAGGED], first)


@pytest.mark.parametrize("expiries", [1, 2])
def test_a_later_reset_and_expiries_leave_what_such_a_branch_shows(
    repository: ars.Repository, monkeypatch: pytest.MonkeyPatch, expiries: int
) -> None:
    ids = commit_rows(repository, 0, 2 * LEFT)
    first = _ids(repository, "main")[-1]
    repository.create_tag("kept", ids[TAGGED])
    _create_while_it_expires(repository, monkeypatch, "side", ids[LEFT])
    repository = ars.Repository.open(repository.storage)
    repository.reset_branch("main", ids[TAGGED])
    for row in range(expiries):
        commit_rows(repository, 2 * LEFT + 2 * row + 1, 2 * LEFT + 2 * row + 2)
        assert ars.Repository.open(repository.storage).expire_snapshots(datetime.now(UTC))
    assert _parents(ars.Repository.open(repository.storage), "side") == _in_a_row(ids[LEFT], ids[TAGGED], first)


def test_it_is_led_on_through_the_origin_of_a_branch_of_which_nothing_else_is_left(
    repository: ars.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = commit_rows(repository, 0, LEFT)
    repository.create_branch("dev", ids[TAGGED])
    more = [commit_number(repository, row, row, "dev") for row in range(2 * LEFT)]
    _create_while_it_expires(repository, monkeypatch, "side", more[LEFT])
    first = _ids(repository, "main")[-1]
    assert _parents(repository, "side") == _in_a_row(more[LEFT], first)


def test_what_another_life_of_the_log_had_is_no_history_of_it(
    repository: ars.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = commit_rows(repository, 0, LEFT)
    first = _ids(repository, "main")[-1]
    repository.create_tag("kept", ids[LEFT])
    repository.reset_branch("main", ids[TAGGED])
    more = commit_rows(repository, LEFT + 1, LEFT + 3)
    repository.create_tag("old", more[0])
    repository.reset_branch("main", ids[LEFT])
    commit_rows(repository, LEFT + 4, LEFT + 6)
    repository.create_branch("other", more[-1])
    _create_while_it_expires(repository, monkeypatch, "side", more[-2])
    shown = _ids(repository, "side")
    assert shown[0] == more[-2]
    assert ids[LEFT] not in shown
    assert set(shown) <= {more[-2], more[0], first}


@pytest.mark.parametrize("expiries", [1, 2, 3, 4])
def test_what_was_flushed_before_a_reset_leads_to_what_any_number_of_expiries_has_left(
    repository: ars.Repository, expiries: int
) -> None:
    ids = commit_rows(repository, 0, 3)
    repository.create_tag("first", ids[0])
    ars.Repository.open(repository.storage).expire_snapshots(datetime.now(UTC))
    repository = ars.Repository.open(repository.storage)
    commit_rows(repository, 4, 4)
    flushed = _flush(repository)
    repository.reset_branch("main", ids[0])
    for row in range(5, 5 + 2 * expiries, 2):
        commit_rows(repository, row, row + 1)
        assert ars.Repository.open(repository.storage).expire_snapshots(datetime.now(UTC))
    repository = ars.Repository.open(repository.storage)
    repository.create_branch("side", flushed)
    assert _ids(repository, "side")[:2] == [flushed, ids[0]]
