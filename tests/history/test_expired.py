"""Differences, moments and drawings of a history of which a part has expired, and of which the garbage is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from arraystore import Repository, SnapshotNotFoundError, Storage, in_memory_storage
from tests.commit.support import commit_number, commit_rows, create_repository

ROWS = 150
KEPT = 100
"""Row of the oldest snapshot that has not expired."""

TAGGED = 40


@dataclass(frozen=True)
class _Past:
    """A repository whose older snapshots have expired, and what it was."""

    storage: Storage
    ids: dict[int, str]
    times: dict[int, datetime]
    first: str

    def repository(self) -> Repository:
        return Repository.open(self.storage)


@pytest.fixture(scope="module", params=["expired", "collected"])
def past(request: pytest.FixtureRequest) -> _Past:
    storage = in_memory_storage()
    repository = create_repository(storage)
    ids = dict(enumerate(commit_rows(repository, 0, ROWS - 1)))
    repository.wait_for_maintenance()
    repository.create_tag("kept", ids[TAGGED])
    repository.create_branch("dev", ids[TAGGED + 10])
    commit_number(repository, 1000, 1, "dev")
    history = list(repository.ancestry(branch="main"))
    times = {row: repository.lookup_snapshot(ids[row]).written_at for row in (KEPT, ROWS - 1)}
    repository.expire_snapshots(times[KEPT])
    if request.param == "collected":
        repository.garbage_collect(datetime.now(UTC), record_grace=timedelta(0), nobody_writes=True)
    return _Past(storage, ids, times, history[-1].id)


def test_what_is_left_is_compared_as_if_nothing_had_expired(past: _Past) -> None:
    repository = past.repository()
    for ends in ({"from_tag": "kept", "to_branch": "main"}, {"from_branch": "main", "to_tag": "kept"}):
        diff = repository.diff(**ends)
        assert diff.updated_chunks["/a"][:, 0].tolist() == list(range(TAGGED + 1, ROWS))
    diff = repository.diff(from_tag="kept", to_branch="dev")
    assert diff.updated_chunks["/a"][:, 0].tolist() == [*range(TAGGED + 1, TAGGED + 11), 1000]
    diff = repository.diff(from_snapshot_id=past.ids[KEPT], to_snapshot_id=past.ids[KEPT + 3])
    assert diff.updated_chunks["/a"][:, 0].tolist() == [KEPT + 1, KEPT + 2, KEPT + 3]


def test_what_has_expired_is_refused(past: _Past) -> None:
    with pytest.raises(SnapshotNotFoundError, match="expired"):
        past.repository().diff(from_snapshot_id=past.ids[TAGGED + 1], to_branch="main")


def test_a_moment_finds_the_newest_snapshot_of_then_that_is_left(past: _Past) -> None:
    for row in (ROWS - 1, KEPT):
        session = past.repository().readonly_session("main", as_of=past.times[row])
        assert session.snapshot_id == past.ids[row]


def test_a_drawing_joins_what_is_left(past: _Past) -> None:
    graph = past.repository().ancestry_graph(limit=200)
    rows = {row.id: row for row in graph.rows}
    assert rows[past.ids[KEPT]].parent_id == past.ids[TAGGED]
    assert rows[past.ids[TAGGED]].labels == ("tag: kept",)
    assert rows[past.ids[TAGGED]].parent_id == past.first
    assert graph.rows[-1].id == past.first
    assert not graph.more
    assert past.ids[TAGGED + 1] not in rows
    assert all(row.parent_id in rows for row in graph.rows[:-1])
