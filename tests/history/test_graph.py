"""Drawings of histories: forks and labels where they belong, whatever the clocks said, and bounded."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator

import pytest

from arraystore import InvalidInputError, MemoryStorage, RefNotFoundError, Repository, in_memory_storage
from arraystore._format.history import SnapshotRow
from arraystore._format.record import encode_note
from arraystore._history.graph import AncestryGraph, draw_history, gather_rows
from tests.commit.support import commit_number, create_repository, objects, run_alone
from tests.copying.support import FarMemory
from tests.meanwhile import Meanwhile


def _id(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _row(number: int, parent: int | None, time: int | None = None, message: str = "") -> SnapshotRow:
    note = encode_note(message or f"n{number}", {})
    return SnapshotRow(0, _id(number), None if parent is None else _id(parent), number if time is None else time, note)


def _drawn(rows: list[SnapshotRow], labels: dict[bytes, list[str]] | None = None, limit: int = 100) -> AncestryGraph:
    return draw_history({row.id: row for row in rows}, labels or {}, limit, plain=True)


def _shape(graph: AncestryGraph) -> list[str]:
    """Return the drawing with the last word of each line only."""
    lines = str(graph).splitlines()
    return [line[: line.find("0000")] + line.split()[-1] if "0000" in line else line for line in lines]


def test_one_branch_is_one_column() -> None:
    assert _shape(_drawn([_row(1, None), _row(2, 1), _row(3, 2)])) == ["* n3", "* n2", "* n1"]


def test_branches_that_start_at_one_snapshot_meet_above_it() -> None:
    graph = _drawn([_row(1, None), _row(2, 1), _row(3, 1), _row(4, 2), _row(5, 1)])
    assert _shape(graph) == ["*     n5", "| *   n4", "| | * n3", "| * | n2", "+-+-'", "*     n1"]


def test_a_branch_within_a_branch_passes_by_what_is_drawn_beside_it() -> None:
    graph = _drawn([_row(1, None), _row(2, 1), _row(3, 2), _row(4, 1), _row(5, 2)])
    assert _shape(graph) == ["*     n5", "| *   n4", "| | * n3", "+-|-'", "* |   n2", "+-'", "*     n1"]


def test_a_column_is_used_again_after_a_meeting_but_not_beneath_a_first_snapshot() -> None:
    graph = _drawn([_row(1, None), _row(2, None), _row(3, None), _row(4, 3), _row(5, 2)])
    assert _shape(graph) == ["*     n5", "| *   n4", "| *   n3", "*     n2", "    * n1"]
    graph = _drawn([_row(1, None), _row(2, 1), _row(3, 1), _row(4, 3), _row(5, 3)])
    assert _shape(graph) == ["*   n5", "| * n4", "+-'", "*   n3", "| * n2", "+-'", "*   n1"]


def test_labels_and_the_first_line_of_a_message_stand_beside_the_dot() -> None:
    graph = _drawn([_row(1, None, message="first\nsecond \x1b[31m")], {_id(1): ["main", "tag: v1"]})
    assert str(graph).endswith("1970-01-01 00:00 (main, tag: v1) first")
    assert "\x1b" not in str(_drawn([_row(1, None, message="\x1b[31mred")]))
    assert str(_drawn([_row(1, None, message="é")])).isascii()


def test_no_snapshot_is_drawn_above_one_that_started_from_it_whatever_the_clocks_said() -> None:
    choices = random.Random(0)
    parents = {number: choices.randrange(max(1, number - 5), number) for number in range(2, 60)}
    rows = [_row(1, None), *(_row(number, parent, choices.randrange(1000)) for number, parent in parents.items())]
    choices.shuffle(rows)
    for limit in (100, 20):
        graph = _drawn(rows, limit=limit)
        at = {row.id: i for i, row in enumerate(graph.rows)}
        assert len(at) == min(limit, len(rows))
        for row in graph.rows:
            if row.parent_id in at:
                assert at[row.parent_id] > at[row.id]


def _columns(graph: AncestryGraph) -> dict[str, str]:
    """Follow the lines of a drawing down, and return what each dot's line arrives at."""
    open_lines: dict[int, list[str]] = {}
    found: dict[str, str] = {}
    for row in graph.rows:
        arrived = [name for lane in (row.lane, *row.joined) for name in open_lines.pop(lane, [])]
        found.update(dict.fromkeys(arrived, row.id))
        assert set(row.through) == set(open_lines)
        if row.parent_id is not None:
            open_lines[row.lane] = [row.id]
    assert set(graph.more) == set(open_lines)
    return found


def test_every_line_of_a_random_drawing_leads_to_the_parent() -> None:
    for seed in range(20):
        choices = random.Random(seed)
        rows = [_row(n, None if n == 1 or choices.random() < 0.05 else choices.randrange(1, n)) for n in range(1, 40)]
        graph = _drawn(rows)
        assert _columns(graph) == {row.id: row.parent_id for row in graph.rows if row.parent_id is not None}
        for line, row in zip([line for line in str(graph).splitlines() if "*" in line], graph.rows, strict=True):
            assert line[2 * row.lane] == "*"
            assert {i for i, c in enumerate(line[: line.find("0000")]) if c == "|"} == {2 * i for i in row.through}


def test_histories_are_read_no_further_than_they_are_drawn() -> None:
    pages_read = []

    async def history(numbers: list[int]) -> AsyncIterator[list[SnapshotRow]]:
        for at in range(0, len(numbers), 10):
            pages_read.append(numbers[at])
            yield [_row(n, n - 1 if n > 1 else None) for n in numbers[at : at + 10]]

    main = list(range(100, 0, -1))
    starts = [(_id(100), history(main)), (_id(95), history(main[5:])), (_id(3), history(main[97:]))]
    found = run_alone(gather_rows(starts, 15))
    assert sorted(found, reverse=True) == [_id(n) for n in main[:16]]
    assert pages_read == [100, 90]
    graph = draw_history(found, {}, 15, plain=True)
    assert str(graph).splitlines()[-1] == ": older snapshots are not drawn"


def test_a_repository_draws_all_its_branches_and_tags() -> None:
    repository = create_repository()
    first = commit_number(repository, 1, 1)
    repository.create_branch("dev", first)
    commit_number(repository, 2, 2, "dev")
    repository.create_tag("v1", first)
    newest = commit_number(repository, 3, 3)
    lines = str(repository.ancestry_graph()).splitlines()
    assert [line[:4].rstrip() for line in lines] == ["●", "│ ●", "├─╯", "●", "●", "●"]
    assert f"{newest}" in lines[0]
    assert "(main)" in lines[0]
    assert "(dev)" in lines[1]
    assert "(tag: v1) row 1" in lines[3]
    assert lines[-1].endswith("Repository initialized")
    assert str(repository.ancestry_graph(plain=True)).isascii()


def test_a_drawing_may_start_at_one_place_and_be_short() -> None:
    repository = create_repository()
    first = commit_number(repository, 1, 1)
    repository.create_branch("dev", first)
    commit_number(repository, 2, 2, "dev")
    repository.create_tag("v1", first)
    commit_number(repository, 3, 3)
    assert [row.message for row in repository.ancestry_graph(branch="dev", limit=2).rows] == ["row 2", "row 1"]
    assert len(repository.ancestry_graph(tag="v1").rows) == 3
    assert len(repository.ancestry_graph(snapshot_id=first).rows) == 3
    with pytest.raises(InvalidInputError, match="exactly one"):
        repository.ancestry_graph(branch="dev", tag="v1")
    with pytest.raises(InvalidInputError, match="limit"):
        repository.ancestry_graph(limit=0)
    with pytest.raises(RefNotFoundError):
        repository.ancestry_graph(branch="nowhere")


def test_branches_and_tags_that_are_deleted_meanwhile_are_left_out() -> None:
    made = create_repository()
    first = commit_number(made, 1, 1)
    made.create_branch("dev", first)
    made.create_tag("v1", commit_number(made, 2, 2, "dev"))
    commit_number(made, 3, 3)
    storage = made.storage
    assert isinstance(storage, MemoryStorage)
    found = {info.key: run_alone(storage.get(info.key)) for info in objects(storage)}
    drawn: set[int] = set()
    for at in range(1, 30):
        copy = FarMemory()
        for key, data in found.items():
            copy.put_sync(key, data)

        def delete(copy: MemoryStorage = copy) -> None:
            repository = Repository.open(copy)
            repository.delete_branch("dev")
            repository.delete_tag("v1")

        drawn.add(len(Repository.open(Meanwhile(copy, at, delete)).ancestry_graph().rows))
    assert drawn == {4, 5}


def test_a_notebook_gets_a_picture_with_a_dot_for_each_snapshot_and_a_line_to_each_parent() -> None:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    first = session.commit('<b>"bold" & \x01</b>', allow_empty=True)
    repository.create_branch("a<b", first)
    picture = repository.ancestry_graph()._repr_svg_()
    tree = ET.fromstring(picture)
    name = "{http://www.w3.org/2000/svg}"
    assert len(list(tree.iter(name + "circle"))) == 2
    assert len(list(tree.iter(name + "path"))) == 1
    assert "a<b" in "".join(text for element in tree.iter(name + "text") for text in element.itertext())
