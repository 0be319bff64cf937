"""``show``, ``diff`` and drawings, with credentials that only read."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, Made, commit

pytestmark = pytest.mark.usefixtures("read_only")


def test_show_tells_who_wrote_a_snapshot_and_what_it_changed(cli: Cli, made: Made) -> None:
    shown = cli("show", made.url, made.snapshots[2]).out
    for part in (made.snapshots[2], made.snapshots[1], "rain [bold]falls", "by", "tests", "/climate/north/rain"):
        assert part in shown
    found = cli("show", made.url, "main~1", "--json").json
    assert found["id"] == made.snapshots[2]
    assert found["changes"]["updated_chunks"] == {"/climate/north/rain": [[0, 0], [1, 0]]}


def test_show_without_a_name_shows_the_newest_of_main_and_its_names(cli: Cli, made: Made) -> None:
    made.open().create_tag("v1", made.tip)
    shown = cli("show", made.url).out
    assert "branch main, tag v1" in shown
    assert made.tip in shown


def test_show_of_the_first_snapshot_has_no_parent_to_compare_with(cli: Cli, made: Made) -> None:
    found = cli("show", made.url, made.snapshots[0], "--json").json
    assert (found["parent_id"], found["changes"]) == (None, None)
    assert "none (first snapshot)" in cli("show", made.url, made.snapshots[0]).out


def test_diff_compares_any_two_in_both_directions(cli: Cli, made: Made) -> None:
    forth = cli("diff", made.url, made.snapshots[0], made.snapshots[1], "--json").json
    assert forth["new_arrays"] == ["/climate/north/rain", "/numbers"]
    back = cli("diff", made.url, made.snapshots[1], made.snapshots[0], "--json").json
    assert back["deleted_arrays"] == ["/climate/north/rain", "/numbers"]
    chunks = {"/climate/north/rain": [[0, 0], [1, 0], [2, 0]]}
    assert cli("diff", made.url, "main~2", "--json").json["updated_chunks"] == chunks


def test_diff_for_people_and_as_markdown(cli: Cli, made: Made) -> None:
    assert "/climate/north/rain" in cli("diff", made.url, "main~1").out
    assert "- `/climate/north/rain`: 2 chunks: (1, 0), (2, 0)" in cli("diff", made.url, "main~1", "--markdown").out
    assert "no changes" in cli("diff", made.url, "main", "main").out


def test_a_drawing_has_all_branches_and_tags_or_one_history(cli: Cli, made: Made) -> None:
    made.open().create_branch("dev", made.snapshots[1])
    made.open().create_tag("v1", made.snapshots[2])
    late = commit(made.open(), "on dev", lambda root: root.attrs.update(late=1), "dev")
    drawing = cli("log", made.url, "--graph").out
    for part in (*made.snapshots, late, "main", "dev", "tag: v1", "on dev"):
        assert part in drawing
    assert late not in cli("log", made.url, "main", "--graph").out
    rows = cli("log", made.url, "--graph", "-n", 2, "--json").json
    assert [row["id"] for row in rows] == [late, made.tip]
