"""Expiry and collection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import zarr

from tests.cli.conftest import Cli, Made, commit, flip, make_noise

EXPIRY = ("expire", "--keep-last", "1")
COLLECTION = ("gc", "--older-than", "now")


def with_url(command: tuple[str, ...], url: str) -> list[str]:
    return [command[0], url, *command[1:]]


def packs(made: Made) -> list[str]:
    return [path for path in made.files() if "/chunks/" in path]


def test_expiry_takes_snapshots_out_of_history_and_collection_their_objects(cli: Cli, made: Made) -> None:
    noise = commit(made.open(), "noise", make_noise)
    gone = commit(made.open(), "gone", lambda root: root.__delitem__("noise"))
    quiet = commit(made.open(), "quiet", lambda root: root.attrs.update(quiet=1))
    assert len(packs(made)) == 1
    expired = cli("expire", made.url, "--keep-last", 1, "--yes", "--json").json
    assert expired == {"expired": sorted([*made.snapshots[1:], noise, gone]), "dry_run": False}
    assert [item["id"] for item in cli("log", made.url, "--json").json] == [quiet, made.snapshots[0]]
    assert "expired" in cli("show", made.url, noise, code=1).err
    told = cli("gc", made.url, "--older-than", "now", "--dry-run", "--json").json
    assert (told["chunks_deleted"], told["dry_run"], len(packs(made))) == (1, True, 1)
    summary = cli("gc", made.url, "--older-than", "now", "--yes", "--json").json
    assert (summary["chunks_deleted"], summary["failures"], packs(made)) == (1, [], [])
    assert made.values("climate/north/rain")[0] == 1.0


def test_a_collection_is_told_in_numbers(cli: Cli, made: Made) -> None:
    made.open().create_branch("dev", made.tip)
    commit(made.open(), "noise", make_noise, "dev")
    cli("branch", "delete", made.url, "dev", "--yes")
    shown = cli("gc", made.url, "--older-than", "now", "--yes").out.splitlines()
    assert shown[0] == "Deleted objects:"
    assert ["chunks", "1"] in [line.split() for line in shown]


def test_a_second_collection_finds_nothing_to_do(cli: Cli, made: Made) -> None:
    cli(*with_url(COLLECTION, made.url), "--yes")
    assert cli(*with_url(COLLECTION, made.url), "--yes").out == "Nothing to delete.\n"


def test_what_tags_name_and_a_policy_keeps_stays(cli: Cli, made: Made) -> None:
    made.open().create_tag("v1", made.snapshots[1])
    assert cli("expire", made.url, "--policy", "all for a year", "--yes").out == "Expired 0 snapshots.\n"
    assert cli("expire", made.url, "--older-than", "1d", "--yes").out == "Expired 0 snapshots.\n"
    answer = cli("expire", made.url, "--policy", "last 1", "--yes", "--json").json
    assert answer["expired"] == [made.snapshots[2]]


def test_an_expiry_of_nothing_in_particular_is_refused(cli: Cli, made: Made) -> None:
    assert "expire needs --older-than" in cli("expire", made.url, "--yes", code=1).err
    assert "not a valid rule of a retention policy" in cli("expire", made.url, "--policy", "some", "--yes", code=1).err
    assert "is not a valid time" in cli("gc", made.url, "--older-than", "some", "--yes", code=1).err


def test_a_bare_expiry_goes_by_the_policy_of_the_repository(cli: Cli, made: Made) -> None:
    assert cli("retention", "show", made.url).out == "none: snapshots do not expire by themselves\n"
    assert "not a valid rule" in cli("retention", "set", made.url, "something", code=1).err
    assert cli("retention", "set", made.url, "last 2").out == "last 2\n"
    assert cli("retention", "show", made.url, "--json").json == {"retention": "last 2"}
    assert cli("expire", made.url, "--yes", "--json").json["expired"] == [made.snapshots[1]]
    assert cli("retention", "clear", made.url, "--json").json == {"retention": None}
    assert "expire needs --older-than" in cli("expire", made.url, "--yes", code=1).err


def test_a_collection_by_the_default_cut_off_asks_nobody(cli: Cli, made: Made) -> None:
    assert cli("gc", made.url).out == "Nothing to delete.\n"


def test_maintenance_tells_people_what_each_step_did(cli: Cli, made: Made) -> None:
    cli("retention", "set", made.url, "last 1")
    told = cli("maintain", made.url, "--collect-after", "0s", "--verify-sample", 5).out
    lines = {line.split("  ")[0].strip(): line for line in told.splitlines()}
    assert lines.keys() == {"status", "expire", "compact main", "collect", "verify"}
    assert "done, in" in lines["status"]
    assert "2 snapshots by last 1" in lines["expire"]
    assert "nothing found" in lines["verify"]


def test_maintenance_does_all_in_one_and_prints_one_line_of_json(cli: Cli, made: Made) -> None:
    cli("retention", "set", made.url, "last 1")
    answer = cli("maintain", made.url, "--collect-after", "0s", "--verify-sample", 5, "--json")
    assert answer.out.count("\n") == 1
    assert answer.json["status"] == "done"
    assert answer.json["steps"]["expire"]["snapshots"] == 2
    assert answer.json["steps"]["verify"]["findings"] == answer.json["steps"]["collect"]["failures"] == []
    assert made.values("climate/north/rain")[0] == 1.0
    quick = cli("maintain", made.url, "--compact-bytes", 0, "--verify-sample", 0, "--json").json
    assert quick["steps"].keys() == {"expire", "collect"}
    assert "--lease 'long'" in cli("maintain", made.url, "--lease", "long", code=1).err


def test_maintenance_that_fails_is_told_in_json_and_by_the_exit_code(cli: Cli, made: Made) -> None:
    cli("set-status", made.url, "read-only", "--yes")
    assert "expire failed" in cli("maintain", made.url, "--policy", "last 1", code=1).out
    answer = cli("maintain", made.url, "--policy", "last 1", "--json", code=1)
    assert answer.json["status"] == "failed"
    assert "read-only" in answer.json["errors"]["expire"]


@pytest.mark.parametrize("command", [EXPIRY, COLLECTION], ids=" ".join)
def test_nothing_is_destroyed_unasked(
    cli: Cli, made: Made, asked: Callable[[str], None], command: tuple[str, ...]
) -> None:
    before = made.files()
    assert "add --yes; nothing was changed" in cli(*with_url(command, made.url), code=13).err
    asked("no\n")
    assert "not confirmed" in cli(*with_url(command, made.url), code=13).err
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


def _write_noise(root: zarr.Group, row: int) -> None:
    array = root["noise"]
    assert isinstance(array, zarr.Array)
    array[row] = np.random.default_rng(row).integers(0, 256, 4096, dtype="u1")


def test_maintenance_names_what_is_damaged(cli: Cli, made: Made) -> None:
    commit(made.open(), "noise", lambda root: root.create_array("noise", shape=(8, 4096), chunks=(1, 4096), dtype="u1"))
    for row in range(8):
        commit(made.open(), f"row {row}", partial(_write_noise, row=row))
    flip(made.path.parent / packs(made)[0])
    told = cli("maintain", made.url, "--collect-after", "0s", code=1)
    key = packs(made)[0].partition("/repo/")[2]
    assert f"damaged: {key}" in told.out.replace("\n", "")
    assert told.out.count(f"error: {key}") == 1
    assert "repair: restore the object" in told.out
