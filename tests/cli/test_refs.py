"""Branches, tags and resets: what is asked before anything goes, and what a dry run leaves as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli, Made, commit


def test_a_branch_is_created_listed_and_deleted(cli: Cli, made: Made) -> None:
    assert cli("branch", "create", made.url, "dev/ü").out == f"Created branch dev/ü at {made.tip}.\n"
    assert cli("branch", "create", made.url, "old", "main~2", "--json").json == {
        "branch": "old",
        "snapshot": made.snapshots[1],
    }
    assert cli("branch", "list", made.url, "--json").json == {
        "dev/ü": made.tip,
        "main": made.tip,
        "old": made.snapshots[1],
    }
    assert "old     " + made.snapshots[1] in cli("branch", "list", made.url).out
    assert cli("branch", "delete", made.url, "old", "--yes", "--json").json["snapshot"] == made.snapshots[1]
    assert cli("branch", "list", made.url, "--json").json.keys() == {"dev/ü", "main"}


def test_a_tag_is_created_listed_and_deleted_and_its_name_is_burnt(cli: Cli, made: Made) -> None:
    assert cli("tag", "list", made.url).out == "No tags.\n"
    assert cli("tag", "create", made.url, "v1", "main~1").out == f"Created tag v1 at {made.snapshots[2]}.\n"
    assert cli("tag", "list", made.url, "--json").json == {"v1": made.snapshots[2]}
    assert "already" in cli("tag", "create", made.url, "v1", code=1).err
    cli("tag", "delete", made.url, "v1", "--yes")
    assert cli("tag", "list", made.url, "--json").json == {}
    assert "never used again" in cli("tag", "create", made.url, "v1", code=1).err


def test_a_branch_that_exists_and_names_that_cannot_be_are_errors(cli: Cli, made: Made) -> None:
    assert "already" in cli("branch", "create", made.url, "main", code=1).err
    assert "too long" in cli("branch", "create", made.url, "x" * 3000, code=1).err
    assert "cannot be deleted" in cli("branch", "delete", made.url, "main", "--yes", code=1).err
    assert "no branch 'none'" in cli("branch", "delete", made.url, "none", "--yes", code=1).err


def test_listings_work_with_credentials_that_only_read(cli: Cli, made: Made, read_only: None) -> None:
    assert cli("branch", "list", made.url, "--json").json == {"main": made.tip}
    assert cli("tag", "list", made.url, "--json").json == {}
    assert "may not write" in cli("tag", "create", made.url, "v1", code=1).err


def test_a_reset_moves_the_branch_and_a_tag_keeps_what_it_leaves(cli: Cli, made: Made) -> None:
    answer = cli("reset", made.url, "main", "main~2", "--keep-as", "before", "--yes")
    assert answer.out == f"Moved branch main from {made.tip} to {made.snapshots[1]}.\n"
    assert made.open().lookup_branch("main") == made.snapshots[1]
    assert made.values("climate/north/rain")[0] == 0.0
    cli("reset", made.url, "main", "before", "--yes")
    assert made.values("climate/north/rain")[0] == 1.0


def test_a_deleted_branch_can_be_made_again_from_the_tag_that_kept_it(cli: Cli, made: Made) -> None:
    made.open().create_branch("dev", made.tip)
    late = commit(made.open(), "on dev", lambda root: root.attrs.update(late=1), "dev")
    cli("branch", "delete", made.url, "dev", "--keep-as", "dev-was", "--yes")
    cli("branch", "create", made.url, "dev", "dev-was")
    assert cli("log", made.url, "dev", "-n", 1, "--json").json[0]["id"] == late


def test_what_cannot_be_kept_is_not_destroyed(cli: Cli, made: Made) -> None:
    made.open().create_tag("taken", made.tip)
    cli("reset", made.url, "main", "main~2", "--keep-as", "taken", "--yes", code=1)
    assert made.open().lookup_branch("main") == made.tip


def test_a_reset_from_elsewhere_is_a_conflict_and_moves_nothing(cli: Cli, made: Made) -> None:
    answer = cli("reset", made.url, "main", "main~2", "--from", made.snapshots[0], "--yes", code=12)
    assert made.tip in answer.err
    assert made.open().lookup_branch("main") == made.tip


def test_a_commit_between_question_and_answer_is_not_reset_away(
    cli: Cli, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commits_meanwhile() -> str:
        commit(made.open(), "meanwhile", lambda root: root.attrs.update(late=1))
        return "y\n"

    monkeypatch.setattr("arraystore.cli.confirmation.on_terminal", lambda: True)
    monkeypatch.setattr("arraystore.cli.confirmation.read_answer", commits_meanwhile)
    assert made.tip in cli("reset", made.url, "main", "main~1", code=12).err
    assert next(made.open().ancestry(branch="main")).message == "meanwhile"


def test_an_ambiguous_name_is_refused_where_it_would_be_acted_on(cli: Cli, made: Made) -> None:
    made.open().create_branch("v1", made.snapshots[2])
    made.open().create_tag("v1", made.snapshots[1])
    assert "use branch:v1 or tag:v1" in cli("reset", made.url, "main", "v1", "--yes", code=1).err
    cli("reset", made.url, "main", "tag:v1", "--yes")
    assert made.open().lookup_branch("main") == made.snapshots[1]


DESTRUCTIVE = [("branch", "delete", "dev"), ("tag", "delete", "v1"), ("reset", "main", "main~1")]


@pytest.fixture
def named(made: Made) -> Made:
    made.open().create_branch("dev", made.snapshots[1])
    made.open().create_tag("v1", made.snapshots[1])
    return made


def with_url(command: tuple[str, ...], url: str) -> list[str]:
    at = 2 if command[0] in {"branch", "tag"} else 1
    return [*command[:at], url, *command[at:]]


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=" ".join)
def test_nothing_is_destroyed_unasked(cli: Cli, named: Made, command: tuple[str, ...]) -> None:
    before = named.files()
    answer = cli(*with_url(command, named.url), code=13)
    assert "add --yes; nothing was changed" in answer.err
    assert named.files() == before


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=" ".join)
def test_a_no_is_a_no_and_a_yes_a_yes(
    cli: Cli, named: Made, asked: Callable[[str], None], command: tuple[str, ...]
) -> None:
    before = named.files()
    for line in ("n\n", "\n", "", "yesterday\n"):
        asked(line)
        answer = cli(*with_url(command, named.url), code=13)
        assert answer.out == ""
        assert answer.err.endswith("error: not confirmed; nothing was changed\n")
    assert named.files() == before
    asked("Y\n")
    assert cli(*with_url(command, named.url)).err.endswith("? [y/N] ")
    assert named.files() != before


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=" ".join)
def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    cli: Cli, named: Made, read_only: None, command: tuple[str, ...]
) -> None:
    before = named.files()
    assert cli(*with_url(command, named.url), "--dry-run").out.startswith("Dry run: would ")
    assert cli(*with_url(command, named.url), "--dry-run", "--json").json["dry_run"] is True
    assert named.files() == before


def test_a_place_of_the_reflog_is_a_name_of_a_snapshot(cli: Cli, made: Made) -> None:
    made.open().reset_branch("main", made.snapshots[1])
    assert cli("show", made.url, "main@{1}", "--json").json["id"] == made.tip
    assert cli("show", made.url, "main@{1}~2", "--json").json["id"] == made.snapshots[1]
    cli("reset", made.url, "main", "main@{1}", "--yes")
    assert made.open().lookup_branch("main") == made.tip
    assert "the reflog of branch 'main' has 5 places" in cli("show", made.url, "main@{5}", code=1).err
    assert "is not a branch, tag or snapshot" in cli("show", made.url, "main@{one}", code=1).err
    assert "branch 'none'" in cli("show", made.url, "none@{0}", code=1).err


def test_a_deleted_branch_is_made_again_at_a_place_of_its_reflog(cli: Cli, made: Made) -> None:
    cli("branch", "create", made.url, "dev", "main")
    cli("branch", "delete", made.url, "dev", "--yes")
    assert "'dev@{0}' is the deletion of the branch" in cli("show", made.url, "dev@{0}", code=1).err
    cli("branch", "create", made.url, "dev", "dev@{1}")
    assert made.open().lookup_branch("dev") == made.tip
