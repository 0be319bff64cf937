"""Commits made from other commits."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, Made, commit, fill


def test_a_revert_undoes_a_commit_and_history_stays(cli: Cli, made: Made) -> None:
    answer = cli("revert", made.url, "main", "--message", "no more rain")
    newest = next(made.open().ancestry(branch="main"))
    assert newest.message == "no more rain"
    assert newest.parent_id == made.tip
    assert answer.out == f"Committed {newest.id} to branch main: reverts {made.tip}.\n"
    assert made.values("climate/north/rain") == made.values("climate/north/rain", snapshot_id=made.snapshots[2])


def test_a_revert_of_what_was_changed_since_lists_conflicts_and_commits_nothing(cli: Cli, made: Made) -> None:
    answer = cli("revert", made.url, made.snapshots[2], code=12)
    assert answer.err.startswith("error: ")
    assert "/climate/north/rain" in answer.err
    assert made.open().lookup_branch("main") == made.tip


def test_a_cherry_pick_repeats_a_commit_on_another_branch(cli: Cli, made: Made) -> None:
    made.open().create_branch("dev", made.tip)
    picked = commit(made.open(), "on dev", lambda root: fill(root, slice(8, 10), 7.0), "dev")
    answer = cli("cherry-pick", made.url, "dev", "--json").json
    assert answer["cherry_picked"] == picked
    assert made.open().lookup_branch("main") == answer["snapshot"]
    assert made.values("climate/north/rain") == made.values("climate/north/rain", branch="dev")
    assert cli("show", made.url, "--json").json["metadata"]["cherry_picked_from"] == picked


@pytest.mark.parametrize("command", ["revert", "cherry-pick"])
def test_the_first_snapshot_changes_nothing_that_could_be_repeated(cli: Cli, made: Made, command: str) -> None:
    assert "it is the first one" in cli(command, made.url, made.snapshots[0], code=1).err
    assert made.open().lookup_branch("main") == made.tip
