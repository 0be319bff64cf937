"""Commands that only read do so with credentials that may do no more, and leave every object as it is."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, Made, commit, make_noise

READING = [
    "log URL",
    "log URL --graph",
    "show URL",
    "diff URL main~2",
    "tree URL",
    "ls URL climate/north",
    "stat URL",
    "stat URL --requests",
    "ops URL",
    "verify URL --level chunks",
    "repair URL --dry-run",
    "branch list URL",
    "tag list URL",
    "config list URL",
    "config get URL pack_target_bytes",
    "status URL",
    "retention show URL",
    "reflog URL",
    "metadata list URL",
    "flag list URL",
    "expire URL --keep-last 1 --dry-run",
    "gc URL --older-than now --dry-run",
    "compact URL --dry-run",
]


@pytest.mark.parametrize("command", READING)
def test_what_only_reads_writes_nothing(cli: Cli, made: Made, read_only: None, command: str) -> None:
    repository = made.open()
    repository.create_tag("v1", made.snapshots[1])
    repository.create_branch("dev", made.snapshots[2])
    commit(repository, "noise", make_noise, "dev")
    repository.wait_for_maintenance()
    before = made.files()
    arguments = [made.url if part == "URL" else part for part in command.split()]
    assert cli(*arguments).out
    cli(*arguments, "--json").json  # noqa: B018 - that it is JSON
    assert made.files() == before
