"""Making a repository and setting it up."""

from __future__ import annotations

from pathlib import Path

import pytest

from arraystore import ReadOnlyError, Repository, local_filesystem_storage
from tests.cli.conftest import Cli, Made, commit


def test_init_makes_a_repository_with_the_settings_given(cli: Cli, tmp_path: Path) -> None:
    answer = cli("init", tmp_path / "new", "--set", "pack_target_bytes=16MiB", "--json").json
    repository = Repository.open(local_filesystem_storage(str(tmp_path / "new")))
    assert repository.config.pack_target_bytes == 16 << 20
    assert answer["id"] == repository.id
    assert answer["snapshot"] == repository.lookup_branch("main")
    assert answer["location"].endswith("/new")


def test_init_refuses_a_place_that_is_taken(cli: Cli, made: Made, tmp_path: Path) -> None:
    before = made.files()
    assert cli("init", made.url, code=1).err.startswith("error: ")
    assert made.files() == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert cli("init", tmp_path / "full", code=1).err.startswith("error: ")


@pytest.mark.parametrize(
    "setting", ["pack_target_bytes", "nonsense=1", "pack_target_bytes=many", "pack_target_bytes=-1"]
)
def test_a_setting_that_cannot_be_is_refused_and_nothing_made(cli: Cli, tmp_path: Path, setting: str) -> None:
    answer = cli("init", tmp_path / "new", "--set", setting, code=1)
    assert answer.err.startswith("error: ")
    assert not (tmp_path / "new").exists()


def test_settings_are_listed_read_and_changed(cli: Cli, made: Made) -> None:
    assert cli("config", "get", made.url, "inline_chunk_threshold_bytes").out == "512\n"
    answer = cli("config", "set", made.url, "inline_chunk_threshold_bytes=1KiB", "pack_target_bytes=9437184")
    assert answer.out == "Changed inline_chunk_threshold_bytes: 512 → 1024; pack_target_bytes: 8388608 → 9437184.\n"
    assert made.open().config.inline_chunk_threshold_bytes == 1024
    listed = cli("config", "list", made.url, "--json").json
    assert listed == made.open().config.to_dict()
    assert listed["pack_target_bytes"] == 9437184
    assert "pack_target_bytes" in cli("config", "list", made.url).out
    assert cli("config", "set", made.url, "pack_target_bytes=9MiB").out == "Nothing to change.\n"


def test_a_dry_run_of_a_setting_changes_nothing(cli: Cli, made: Made, read_only: None) -> None:
    before = made.files()
    answer = cli("config", "set", made.url, "pack_target_bytes=16MiB", "--dry-run", "--json").json
    assert answer == {"changed": {"pack_target_bytes": 16 << 20}, "dry_run": True}
    assert cli("config", "get", made.url, "pack_target_bytes", "--json").json == 8 << 20
    assert made.files() == before


def test_a_setting_that_there_is_not_is_an_error_that_lists_those_there_are(cli: Cli, made: Made) -> None:
    assert "pack_target_bytes" in cli("config", "get", made.url, "nonsense", code=1).err
    assert "pack_target_bytes" in cli("config", "set", made.url, "nonsense=1", code=1).err


def status(cli: Cli, made: Made) -> str:
    """Return what the command shows as the status."""
    lines = [line.split(maxsplit=1) for line in cli("status", made.url).out.splitlines()]
    return {name: text.strip() for name, text in lines}["status"]


def test_a_read_only_repository_refuses_commits_and_says_why_until_it_is_online(cli: Cli, made: Made) -> None:
    assert status(cli, made) == "online"
    assert (
        cli("set-status", made.url, "read-only", "--reason", "moving", "--yes").out == "The repository is read-only.\n"
    )
    assert status(cli, made) == "read-only: moving"
    found = cli("status", made.url, "--json").json["status"]
    assert (found["availability"], found["limited_availability_reason"]) == ("read_only", "moving")
    with pytest.raises(ReadOnlyError):
        commit(made.open(), "refused", lambda root: root.attrs.update(late=1))
    assert "read-only: moving" in cli("tag", "create", made.url, "v1", code=11).err
    cli("set-status", made.url, "online")
    assert status(cli, made) == "online"
    commit(made.open(), "accepted", lambda root: root.attrs.update(late=1))


def test_the_status_is_not_changed_unasked_nor_by_a_dry_run(cli: Cli, made: Made) -> None:
    assert "add --yes" in cli("set-status", made.url, "read-only", code=13).err
    assert cli("set-status", made.url, "read-only", "--dry-run").out == "Dry run: would be read-only.\n"
    assert "online" in cli("set-status", made.url, "closed", code=2).err
    assert status(cli, made) == "online"


def test_the_status_tells_names_and_retention(cli: Cli, made: Made) -> None:
    made.open().create_tag("v1", made.tip)
    made.open().set_retention("last 2")
    found = cli("status", made.url, "--json").json
    assert (found["branches"], found["tags"], found["retention"]) == (["main"], ["v1"], "last 2")
    assert found["id"] == made.open().id


def test_metadata_is_set_in_part_listed_and_deleted(cli: Cli, made: Made) -> None:
    cli("metadata", "set", made.url, "title=Rain", 'contact={"name": "Ö"}')
    cli("metadata", "set", made.url, "title=More rain")
    assert made.open().get_metadata() == {"title": "More rain", "contact": {"name": "Ö"}}
    assert cli("metadata", "list", made.url, "--json").json == made.open().get_metadata()
    assert cli("metadata", "get", made.url, "title").out == "More rain\n"
    assert "it has contact, title" in cli("metadata", "get", made.url, "none", code=1).err
    assert "add --yes" in cli("metadata", "delete", made.url, "title", code=13).err
    cli("metadata", "delete", made.url, "title", "--dry-run")
    assert "title" in made.open().get_metadata()
    cli("metadata", "delete", made.url, "title", "--yes")
    assert cli("metadata", "list", made.url, "--json").json == {"contact": {"name": "Ö"}}


def test_an_operation_that_is_switched_off_is_refused(cli: Cli, made: Made) -> None:
    assert set(cli("flag", "list", made.url, "--json").json.values()) == {True}
    cli("flag", "set", made.url, "create_tag", "off")
    assert cli("flag", "list", made.url, "--json").json["create_tag"] is False
    assert "switched off" in cli("tag", "create", made.url, "v1", code=1).err
    cli("flag", "set", made.url, "create_tag", "default")
    cli("tag", "create", made.url, "v1")
    assert "no flag 'none'" in cli("flag", "set", made.url, "none", "off", code=1).err
    assert "on" in cli("flag", "set", made.url, "create_tag", "maybe", code=2).err


def test_an_empty_repository_is_shown_as_empty(cli: Cli, tmp_path: Path) -> None:
    cli("init", tmp_path / "new")
    assert cli("tree", tmp_path / "new").out == "/\n(empty)\n"
    assert cli("ls", tmp_path / "new").out == "(empty)\n"
    assert [view["path"] for view in cli("tree", tmp_path / "new", "--json").json] == ["/"]
    assert cli("ls", tmp_path / "new", "--json").json == []
