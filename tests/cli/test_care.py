"""Expiry and collection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli, Made

EXPIRY = ("expire", "--keep-last", "1")
COLLECTION = ("gc", "--older-than", "now")


def with_url(command: tuple[str, ...], url: str) -> list[str]:
    return [command[0], url, *command[1:]]


def test_expiry_takes_snapshots_out_of_history_and_collection_their_objects(cli: Cli, made: Made) -> None:
    cli("reset", made.url, "main", "main~1", "--yes")
    chunks = [path for path in made.files() if "/chunks/" in path]
    expired = cli("expire", made.url, "--keep-last", 1, "--yes", "--json").json
    assert expired == {"expired": [made.snapshots[1]], "dry_run": False}
    assert [item["id"] for item in cli("log", made.url, "--json").json] == [made.snapshots[2], made.snapshots[0]]
    summary = cli("gc", made.url, "--older-than", "now", "--full", "--yes", "--json").json
    assert summary["failures"] == []
    assert summary["full"] is True
    left = [path for path in made.files() if "/chunks/" in path]
    assert len(chunks) - len(left) == summary["chunks_deleted"]
    assert made.values("climate/north/rain")[0] == 1.0
    assert "expired" in cli("show", made.url, made.snapshots[1], code=1).err


def test_a_second_collection_finds_nothing_to_do(cli: Cli, made: Made) -> None:
    cli(*with_url(COLLECTION, made.url), "--yes")
    assert cli(*with_url(COLLECTION, made.url), "--yes").out.strip() == "Done: nothing to delete"


def test_what_tags_name_and_a_policy_keeps_stays(cli: Cli, made: Made) -> None:
    made.open().create_tag("v1", made.snapshots[1])
    assert cli("expire", made.url, "--policy", "all for a year", "--yes").out == "Expired 0 snapshots.\n"
    assert cli("expire", made.url, "--older-than", "1d", "--yes").out == "Expired 0 snapshots.\n"
    answer = cli("expire", made.url, "--policy", "last 1", "--yes", "--json").json
    assert answer["expired"] == [made.snapshots[2]]


def test_an_expiry_of_nothing_in_particular_is_refused(cli: Cli, made: Made) -> None:
    assert "say what is to stay" in cli("expire", made.url, "--yes", code=1).err
    assert "no rule of a retention policy" in cli("expire", made.url, "--policy", "some", "--yes", code=1).err
    assert "no point in time" in cli("gc", made.url, "--older-than", "some", "--yes", code=1).err


@pytest.mark.parametrize("command", [EXPIRY, COLLECTION], ids=" ".join)
def test_nothing_is_destroyed_unasked(
    cli: Cli, made: Made, asked: Callable[[str], None], command: tuple[str, ...]
) -> None:
    before = made.files()
    assert "add --yes; nothing was changed" in cli(*with_url(command, made.url), code=1).err
    asked("no\n")
    assert "not confirmed" in cli(*with_url(command, made.url), code=1).err
    assert made.files() == before


@pytest.mark.parametrize("command", [EXPIRY, COLLECTION], ids=" ".join)
def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    cli: Cli, made: Made, read_only: None, command: tuple[str, ...]
) -> None:
    before = made.files()
    assert cli(*with_url(command, made.url), "--dry-run").out.startswith("Dry run: would ")
    assert cli(*with_url(command, made.url), "--dry-run", "--json").json["dry_run"] is True
    assert made.files() == before


def test_a_dry_run_of_an_expiry_names_the_snapshots(cli: Cli, made: Made) -> None:
    shown = cli("expire", made.url, "--keep-last", 2, "--dry-run").out
    assert shown.splitlines()[0] == "Dry run: would expire 1 snapshot."
    assert made.snapshots[1] in shown
