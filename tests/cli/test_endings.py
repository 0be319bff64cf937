"""How commands end: sentences instead of tracebacks, exit codes for programs, and no secret in any of it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import arraystore
from arraystore._runtime.redaction import redact
from arraystore.cli import main
from arraystore.cli.confirmation import NotConfirmedError, confirm
from arraystore.cli.sizes import parse_size
from arraystore.cli.times import parse_duration, parse_time
from arraystore.errors import InvalidInputError
from tests.cli.conftest import APP, Cli, Made

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


def commands() -> list[tuple[str, ...]]:
    """Return every command there is."""
    found: list[tuple[str, ...]] = [(str(info.name),) for info in APP.registered_commands]
    for group in APP.registered_groups:
        assert group.typer_instance is not None
        found += [(str(group.name), str(info.name)) for info in group.typer_instance.registered_commands]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_says_what_it_does_and_takes_json(cli: Cli, command: tuple[str, ...]) -> None:
    shown = cli(*command, "--help").out
    assert "Usage: arraystore " + " ".join(command) in shown
    assert "--json" in shown


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_without_arguments_says_how_it_is_used(cli: Cli, command: tuple[str, ...]) -> None:
    answer = cli(*command, code=2)
    assert answer.out == ""
    assert "Usage: arraystore " + " ".join(command) in answer.err


def test_the_command_alone_shows_all_commands_as_wrong_usage(cli: Cli) -> None:
    shown = cli(code=2).err
    assert all(command[0] in shown for command in commands())


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli("--version").out == f"arraystore {arraystore.__version__}\n"


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_tells_its_exit_statuses(cli: Cli, command: tuple[str, ...]) -> None:
    shown = " ".join(cli(*command, "--help").out.split())
    assert "Exit status:" in shown
    assert "10 no repository" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered_for_each_shell(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"bash": {"COMP_WORDS": "arraystore re", "COMP_CWORD": "1"}}
    more = {"_TYPER_COMPLETE_ARGS": "arraystore re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for name, value in {"_ARRAYSTORE_COMPLETE": f"complete_{shell}", **words.get(shell, more)}.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, "-c", "from arraystore.cli import main; main([])"], capture_output=True, text=True, check=False
    )
    assert {"reset", "repair", "reflog", "retention", "revert"} <= set(done.stdout.replace('"', " ").split()), done


def test_a_typing_error_is_answered_with_the_likely_command(cli: Cli) -> None:
    assert "Did you mean 'log', 'reflog'?" in cli("logg", code=2).err


def test_a_place_without_repository_is_an_error_of_one_line_and_makes_nothing(cli: Cli, tmp_path: Path) -> None:
    for command in ("log", "tree", "ls"):
        answer = cli(command, tmp_path / "none", code=10)
        assert answer.out == ""
        assert answer.err.startswith("error: there is no repository at ")
        assert answer.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_is_exit_code_130(cli: Cli, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(arraystore.Repository, "open", interrupted)
    assert cli("log", made.url, code=130).err.startswith("interrupted")


def test_an_error_that_nobody_foresaw_is_a_sentence_without_secrets(
    cli: Cli, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"request to https://user:{SECRET}@host/?X-Amz-Signature={SECRET} with {SECRET}")

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(arraystore.Repository, "open", broken)
    answer = cli("log", made.url, code=1)
    assert answer.err.startswith("error: unexpected RuntimeError: request to https://***@host/")
    assert SECRET not in answer.out + answer.err
    monkeypatch.setenv("ARRAYSTORE_TRACEBACK", "1")
    assert main(["log", made.url]) == 1


@pytest.mark.parametrize(
    "url", [f"s3://key:{SECRET}@bucket/x", f"s3://bucket/x?secret_access_key={SECRET}", f"gs://b/x?token={SECRET}"]
)
@pytest.mark.parametrize("more", [(), ("one", "too", "many")])
def test_a_url_with_a_secret_is_refused_without_showing_it(cli: Cli, url: str, more: tuple[str, ...]) -> None:
    answer = cli("log", url, *more, code=2 if more else 1)
    assert SECRET not in answer.out + answer.err
    turned = cli("log", "path", "main", url, code=2)
    assert SECRET not in turned.out + turned.err


@pytest.mark.parametrize("name", [f"main~{10**20}", f"main@{{{10**20}}}"])
def test_a_snapshot_beyond_any_history_does_not_exist(cli: Cli, made: Made, name: str) -> None:
    assert cli("log", made.url, name, code=1).err.startswith("error: the ")


def test_a_token_in_front_of_a_host_is_not_shown() -> None:
    assert redact(f"https://{SECRET}@host/x") == "https://***@host/x"
    assert redact("abfs://container@account/x") == "abfs://container@account/x"


def test_what_is_no_secret_stays_readable() -> None:
    text = "no object 'refs/main' in s3://bucket/prefix?region=eu-west-1&endpoint_url=http://host:9000"
    assert redact(text) == text


def test_without_terminal_nobody_is_asked_and_nothing_done() -> None:
    with pytest.raises(NotConfirmedError, match="add --yes; nothing was changed"):
        confirm("delete everything", yes=False)
    confirm("delete everything", yes=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30d", NOW - timedelta(days=30)),
        ("12h", NOW - timedelta(hours=12)),
        ("1d12h", NOW - timedelta(hours=36)),
        ("1.5w", NOW - timedelta(days=10.5)),
        ("now", NOW),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T12:30", datetime(2026, 11, 1, 12, 30, tzinfo=UTC)),
        ("2026-11-01T12:30+02:00", datetime(2026, 11, 1, 10, 30, tzinfo=UTC)),
    ],
)
def test_times_are_durations_before_now_or_dates_in_utc(text: str, expected: datetime) -> None:
    found = parse_time(text, option="--older-than", now=NOW)
    assert found == expected
    assert found.tzinfo is not None


@pytest.mark.parametrize("text", ["", "30", "d", "30x", "yesterday", "99999999999d", "2026-13-01", "-3d"])
def test_what_is_no_time_is_an_error_that_says_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"--older-than .* is not a valid time: use 30s, 15m"):
        parse_time(text, option="--older-than", now=NOW)


def test_lengths_of_time_and_sizes() -> None:
    assert parse_duration("1h30m", option="--max-time") == timedelta(minutes=90)
    assert [parse_size(text, option="x") for text in ("8MiB", "1.5 kb", "7", "2g")] == [8 << 20, 1500, 7, 2 * 10**9]
    for call, text in ((parse_duration, "soon"), (parse_size, "8 miles"), (parse_size, "MiB")):
        with pytest.raises(InvalidInputError, match="--x"):
            call(text, option="--x")


def python(program: str) -> str:
    package = str(Path(arraystore.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": package}, timeout=60,
    )  # fmt: skip
    return done.stdout


def test_without_its_extra_the_command_says_in_one_line_what_to_install() -> None:
    program = (
        "import sys; sys.modules['typer'] = None; sys.stderr = sys.stdout\n"
        "from arraystore.cli import main\nprint(main(['log', 'x']))"
    )
    told, code = python(program).splitlines()
    assert told == (
        "error: the command line needs the package 'typer', which is not installed: pip install 'arraystore[cli]'"
    )
    assert code == "1"


def test_the_package_itself_imports_nothing_of_the_command_line() -> None:
    program = "import sys, arraystore; print({*sys.modules} & {'rich', 'typer', 'click'})"
    assert python(program) == "set()\n"


def test_as_a_process_output_exit_code_and_a_reader_that_leaves(made: Made) -> None:
    command = [sys.executable, "-m", "arraystore.cli"]
    package = {"PYTHONPATH": str(Path(arraystore.__file__).parents[1])}
    done = subprocess.run(
        [*command, "log", made.url], capture_output=True, text=True, env=package, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"snapshot {made.tip} (branch main)"
    failed = subprocess.run(
        [*command, "log", "none"], capture_output=True, text=True, env=package, check=False, timeout=60
    )
    assert (failed.returncode, failed.stdout) == (10, "")
    with subprocess.Popen(
        [*command, "log", made.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=package
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
