"""Sessions of a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from arraystore import ArrayStoreError, InvalidInputError, SnapshotNotFoundError
from tests.commit.support import commit_number, create_repository, number


def test_a_session_of_a_moment_reads_the_newest_snapshot_of_then() -> None:
    repository = create_repository()
    for row in range(5):
        commit_number(repository, row, row)
    history = list(repository.ancestry(branch="main"))
    for moment in (info.written_at for info in history):
        session = repository.readonly_session("main", as_of=moment.astimezone(timezone(timedelta(hours=5))))
        assert session.snapshot_id == next(info.id for info in history if info.written_at <= moment)
    assert number(repository.readonly_session("main", as_of=datetime.now(UTC) + timedelta(days=1)), 4) == 4
    between = history[1].written_at - timedelta(microseconds=1)
    session = repository.readonly_session("main", as_of=between)
    assert session.read_only
    assert session.snapshot_id == next(info.id for info in history if info.written_at <= between)


def test_a_moment_before_the_first_snapshot_is_refused() -> None:
    repository = create_repository()
    first = list(repository.ancestry(branch="main"))[-1].written_at
    with pytest.raises(SnapshotNotFoundError, match=r"has no snapshot of .* its first one is of"):
        repository.readonly_session("main", as_of=first - timedelta(microseconds=1))


def test_a_moment_goes_back_through_the_origin_of_a_branch() -> None:
    repository = create_repository()
    first = commit_number(repository, 1, 1)
    moment = repository.lookup_snapshot(first).written_at
    last = commit_number(repository, 2, 2)
    repository.create_branch("dev", last)
    commit_number(repository, 3, 3, "dev")
    assert number(repository.readonly_session("dev", as_of=moment), 1) in (1, None)
    expected = next(info.id for info in repository.ancestry(branch="dev") if info.written_at <= moment)
    assert repository.readonly_session("dev", as_of=moment).snapshot_id == expected


@pytest.mark.parametrize("moment", [datetime(2026, 1, 1), "2026-01-01"])  # noqa: DTZ001 - that is the point
def test_a_time_without_a_zone_is_a_type_error_of_ours(moment: object) -> None:
    repository = create_repository()
    with pytest.raises(TypeError, match="time zone") as raised:
        repository.readonly_session("main", as_of=moment)  # type: ignore[arg-type]
    assert isinstance(raised.value, ArrayStoreError)


def test_a_moment_needs_a_branch() -> None:
    repository = create_repository()
    now = datetime.now(UTC)
    snapshot = repository.lookup_branch("main")
    for place in ({"snapshot_id": snapshot}, {"tag": "v1"}, {"branch": "main", "snapshot_id": snapshot}, {}):
        with pytest.raises(InvalidInputError):
            repository.readonly_session(**place, as_of=now)
