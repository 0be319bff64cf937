"""Differences, moments and drawings where branches were put back, deleted and created anew."""

from __future__ import annotations

from arraystore import Repository
from tests.commit.support import commit_number, create_repository


def _changed(repository: Repository, **ends: str) -> list[int]:
    return [row for (row,) in repository.diff(**ends).updated_chunks["/a"].tolist()]


def _put_back() -> tuple[Repository, dict[str, str]]:
    """Make a branch of which two commits were left behind, one of them under a tag."""
    repository = create_repository()
    ids = {f"row {row}": commit_number(repository, row, row) for row in (1, 2, 3)}
    repository.create_tag("kept", ids["row 3"])
    repository.reset_branch("main", ids["row 1"])
    ids["row 4"] = commit_number(repository, 4, 4)
    return repository, ids


def test_what_a_reset_left_behind_is_compared_with_what_came_after_it() -> None:
    repository, ids = _put_back()
    assert _changed(repository, from_tag="kept", to_branch="main") == [2, 3, 4]
    assert _changed(repository, from_branch="main", to_snapshot_id=ids["row 2"]) == [2, 4]
    assert _changed(repository, from_snapshot_id=ids["row 1"], to_branch="main") == [4]


def test_a_drawing_shows_what_a_tag_keeps_of_what_was_left_behind() -> None:
    repository, _ = _put_back()
    graph = repository.ancestry_graph(plain=True)
    assert [(row.message, row.labels, row.lane) for row in graph.rows] == [
        ("row 4", ("main",), 0),
        ("row 3", ("tag: kept",), 1),
        ("row 2", (), 1),
        ("row 1", (), 0),
        ("create a", (), 0),
        ("Repository initialized", (), 0),
    ]
    assert [line[:4].strip() for line in str(graph).splitlines()] == ["*", "| *", "| *", "+-'", "*", "*", "*"]


def test_a_moment_before_a_reset_is_looked_for_in_the_history_that_the_branch_has_now() -> None:
    repository, ids = _put_back()
    moment = repository.lookup_snapshot(ids["row 3"]).written_at
    assert repository.readonly_session("main", as_of=moment).snapshot_id == ids["row 1"]


def test_a_deleted_branch_is_not_drawn_and_one_of_its_name_starts_anew() -> None:
    repository, ids = _put_back()
    repository.create_branch("dev", ids["row 1"])
    commit_number(repository, 5, 5, "dev")
    repository.delete_branch("dev")
    assert "row 5" not in [row.message for row in repository.ancestry_graph().rows]
    repository.create_branch("dev", ids["row 4"])
    commit_number(repository, 6, 6, "dev")
    rows = repository.ancestry_graph(branch="dev").rows
    assert [row.message for row in rows][:3] == ["row 6", "row 4", "row 1"]
    assert rows[0].labels == ("dev",)
    assert _changed(repository, from_branch="main", to_branch="dev") == [6]
