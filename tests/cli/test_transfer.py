"""Repositories and branches to other places."""

from __future__ import annotations

from pathlib import Path

from arraystore import Repository, local_filesystem_storage
from tests.cli.conftest import Cli, Made, commit


def opened(path: Path) -> Repository:
    return Repository.open(local_filesystem_storage(str(path)))


def test_a_clone_has_all_history_and_a_second_one_what_is_new(cli: Cli, made: Made, tmp_path: Path) -> None:
    made.open().create_tag("v1", made.snapshots[1])
    report = cli("clone", made.url, tmp_path / "clone", "--json").json
    assert report["objects"] > 0
    clone = opened(tmp_path / "clone")
    assert [info.id for info in clone.ancestry(branch="main")] == list(reversed(made.snapshots))
    assert clone.lookup_tag("v1") == made.snapshots[1]
    late = commit(made.open(), "late", lambda root: root.attrs.update(late=1))
    again = cli("clone", made.url, tmp_path / "clone", "--no-verify", "--json").json
    assert (again["snapshots"], again["objects"] < report["objects"]) == (None, True)
    assert opened(tmp_path / "clone").lookup_branch("main") == late


def test_a_clone_onto_something_else_is_an_error(cli: Cli, made: Made, tmp_path: Path) -> None:
    cli("init", tmp_path / "other")
    assert cli("clone", made.url, tmp_path / "other", code=1).err.startswith("error: ")
    assert cli("clone", tmp_path / "none", tmp_path / "new", code=10).err.startswith("error: there is no repository")


def test_a_copy_is_one_commit_or_all_of_them(cli: Cli, made: Made, tmp_path: Path) -> None:
    one = cli("copy", made.url, tmp_path / "one", "--ref", "main~1", "--message", "from there", "--json").json
    infos = list(opened(tmp_path / "one").ancestry(branch="main"))
    assert (infos[0].id, infos[0].message, len(infos)) == (one["snapshot_id"], "from there", 2)
    shown = cli("copy", made.url, tmp_path / "all", "--history", "--to-branch", "mirror").out
    assert "snapshots" in shown
    messages = [info.message for info in opened(tmp_path / "all").ancestry(branch="mirror")]
    assert messages[:3] == ["more rain", "rain [bold]falls", "begin"]


def test_a_copy_does_not_replace_what_is_no_copy_unless_told(cli: Cli, made: Made, tmp_path: Path) -> None:
    cli("init", tmp_path / "other")
    commit(opened(tmp_path / "other"), "of its own", lambda root: root.attrs.update(own=1))
    assert cli("copy", made.url, tmp_path / "other", code=1).err.startswith("error: ")
    cli("copy", made.url, tmp_path / "other", "--overwrite")


def test_a_message_for_many_commits_is_refused(cli: Cli, made: Made, tmp_path: Path) -> None:
    assert "without --history" in cli("copy", made.url, tmp_path / "x", "--history", "-m", "m", code=1).err
    assert not (tmp_path / "x").exists()
