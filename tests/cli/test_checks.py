"""Verification and repair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Made, commit, flip, make_noise


def a_file(made: Made, part: str) -> Path:
    return next(path for path in sorted(made.path.rglob("*")) if path.is_file() and f"/{part}/" in str(path))


def test_a_sound_repository_has_nothing_wrong_with_credentials_that_only_read(
    cli: Cli, made: Made, read_only: None
) -> None:
    for options in ((), ("--level", "chunks"), ("--sample", 2)):
        assert "nothing is wrong" in cli("verify", made.url, *options).out
    found = cli("verify", made.url, "--level", "chunks", "--json").json
    assert (found["ok"], found["level"], found["findings"]) == (True, "chunks", [])
    assert "nothing to repair" in cli("repair", made.url, "--dry-run").out
    assert "metadata" in cli("verify", made.url, "--level", "deep", code=2).err


def test_damage_is_told_with_what_it_affects_and_by_the_exit_code(cli: Cli, made: Made) -> None:
    commit(made.open(), "noise", make_noise)
    a_file(made, "chunks").unlink()
    shown = cli("verify", made.url, code=4).out
    assert shown.startswith("error: chunks/")
    assert "arrays: /noise" in shown
    found = cli("verify", made.url, "--json", code=4).json
    assert (found["ok"], len(found["findings"][0]["snapshots"]) > 0) == (False, True)


def test_what_can_be_derived_is_rebuilt_once_confirmed(cli: Cli, made: Made, asked: Callable[[str], None]) -> None:
    hint = a_file(made, "hints")
    hint.write_bytes(b"damaged")
    before = made.files()
    assert cli("verify", made.url, code=3).out.startswith("warning: ")
    assert "would be" in cli("repair", made.url, "--dry-run").out
    assert "add --yes" in cli("repair", made.url, code=13).err
    assert made.files() == before
    asked("yes\n")
    cli("repair", made.url)
    assert "nothing is wrong" in cli("verify", made.url).out


def test_a_repair_with_nothing_to_do_asks_nobody(cli: Cli, made: Made) -> None:
    assert cli("repair", made.url).out == "nothing to repair\n"
    commit(made.open(), "noise", make_noise)
    a_file(made, "chunks").unlink()
    assert "the pack does not exist" in cli("repair", made.url, code=4).out


def test_a_damaged_record_that_others_repeat_is_rebuilt_once_it_is_moved_away(cli: Cli, made: Made) -> None:
    (record,) = made.path.glob("refs/*/branch/main/000000000002")
    whole = record.read_bytes()
    flip(record)
    assert "move it away and run repair, which rebuilds it" in cli("verify", made.url, code=4).out
    record.rename(made.path.parent / "moved away")
    cli("repair", made.url, "--yes")
    assert record.read_bytes() == whole
    assert "nothing is wrong" in cli("verify", made.url).out


@pytest.mark.parametrize("command", ["verify", "status", "log"])
def test_a_damaged_object_of_the_repository_itself_is_told_with_the_remedy(cli: Cli, made: Made, command: str) -> None:
    flip(made.path / "repo")
    assert "restore it from a backup or an older version in the bucket" in cli(command, made.url, code=1).err


def test_where_the_object_of_a_repository_is_lost_nobody_is_told_to_create_one(cli: Cli, made: Made) -> None:
    (made.path / "repo").unlink()
    assert "restore its object 'repo'" in cli("log", made.url, code=10).err
    assert "restore its object 'repo'" in cli("init", made.url, code=1).err
