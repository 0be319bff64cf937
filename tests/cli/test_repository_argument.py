"""Where commands get the repository from: an argument, an option before or after the command, the environment."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from arraystore.cli.repository_argument import REPOSITORY_VARIABLE
from tests.cli.conftest import Cli, Made


@pytest.fixture
def elsewhere(tmp_path: Path, cli: Cli) -> str:
    """Return the path of another repository, which is empty."""
    cli("init", tmp_path / "elsewhere")
    return str(tmp_path / "elsewhere")


@pytest.mark.parametrize("option", ["-R", "--repository"])
def test_an_option_before_or_after_the_command_takes_the_place_of_the_url(cli: Cli, made: Made, option: str) -> None:
    expected = cli("log", made.url, "main~1", "--json").json
    assert cli("log", option, made.url, "main~1", "--json").json == expected
    assert cli("log", "main~1", "--json", option, made.url).json == expected
    assert cli(option, made.url, "log", "main~1", "--json").json == expected
    assert cli("log", f"--repository={made.url}", "main~1", "--json").json == expected
    cli("branch", "create", option, made.url, "dev", "main~1")
    assert cli("branch", "list", option, made.url, "--json").json["dev"] == made.snapshots[-2]


def test_the_environment_takes_its_place_too(cli: Cli, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, made.url)
    assert len(cli("log", "-n", 2, "--json").json) == 2
    assert cli("log", "main~2", "--json").json[0]["id"] == made.snapshots[1]
    cli("tag", "create", "v1", "main~1")
    assert cli("tag", "list", "--json").json == {"v1": made.snapshots[-2]}
    assert cli("diff", "main~1", "--json").json["updated_chunks"]


def test_an_argument_goes_before_the_environment_and_the_option_before_both(
    cli: Cli, made: Made, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, elsewhere)
    assert len(cli("log", "--json").json) == 1
    assert len(cli("log", "-n", 9, made.url, "--json").json) == 4
    assert len(cli("log", f"file://{made.url}", "--json").json) == 4
    assert len(cli("log", "-R", made.url, "--json").json) == 4
    assert len(cli("-R", made.url, "log", "--json").json) == 4


def test_the_option_is_found_wherever_the_command_line_allows_it(
    cli: Cli, made: Made, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, elsewhere)
    assert len(cli("log", f"-R{made.url}", "--json").json) == 4
    cli("branch", "create", f"-R{made.url}", "old", "main~1")
    cli("branch", "delete", "-yR", made.url, "old")
    cli("branch", "create", "-R", made.url, "old", "main~1")
    cli("branch", "delete", f"-yR{made.url}", "old")
    assert "old" not in cli("branch", "list", f"-R{made.url}", "--json").json
    assert "requires an argument" in cli("branch", "delete", "old", "-yR", code=2).err
    assert "'Rain'" in cli("log", "-bRain", code=1).err


@pytest.mark.parametrize("empty", [("-R", ""), ("--repository=",), ("--repository", "")])
def test_an_empty_option_is_no_repository(
    cli: Cli, elsewhere: str, empty: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, elsewhere)
    assert "is empty" in cli("log", *empty, code=2).err


def test_import_and_export_take_it_where_their_other_place_is_an_argument(
    cli: Cli, made: Made, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("export", "-R", made.url, tmp_path / "plain", "--json").json["chunks"] == 5
    monkeypatch.setenv(REPOSITORY_VARIABLE, elsewhere)
    cli("import", "zarr", tmp_path / "plain")
    assert [view["path"] for view in cli("ls", "--json").json] == ["/climate", "/numbers"]


def test_without_any_the_usage_says_what_is_missing(cli: Cli) -> None:
    for command in ("log", "tree", "status"):
        answer = cli(command, code=2)
        assert "Missing argument 'URL'" in answer.err
        assert "-R" in cli(command, "--help").out
    assert "requires an argument" in cli("log", "-R", code=2).err


def test_names_that_begin_like_options_end_options(cli: Cli, made: Made) -> None:
    for before, after in itertools.product([(), ("-R", made.url)], [("--", "-R")]):
        where = () if before else (made.url,)
        assert "'-R' is not a branch, tag or snapshot" in cli("log", *before, *where, *after, code=1).err
