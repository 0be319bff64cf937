"""Retention policy of a repository: ``retention``."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore.cli.console import print_result
from arraystore.cli.group import CommandGroup
from arraystore.cli.options import Json, Url
from arraystore.cli.resolve import open_repository

retention = CommandGroup("Show, set or clear the retention policy, by which snapshots expire.")

Rules = Annotated[
    str, typer.Argument(metavar="RULES", help="Rules such as 'daily for 30 days, weekly for a year, last 10'.")
]


@retention.command("show")
def show(url: Url, as_json: Json = False) -> None:
    """Show the retention policy of `maintain` and of `expire` without options."""
    _print(open_repository(url).get_retention(), as_json)


@retention.command("set")
def set_policy(url: Url, rules: Rules, as_json: Json = False) -> None:
    """Set the retention policy.

    "all", "hourly", "daily", "weekly", "monthly" or "yearly" with "for" a duration keeps the newest snapshot of each
    such period, "last N" the newest ones of each branch. A snapshot is kept if any rule keeps it.
    """
    repository = open_repository(url)
    repository.set_retention(rules)
    _print(repository.get_retention(), as_json)


@retention.command("clear")
def clear(url: Url, as_json: Json = False) -> None:
    """Remove the retention policy: snapshots no longer expire by themselves."""
    repository = open_repository(url)
    repository.set_retention(None)
    _print(repository.get_retention(), as_json)


def _print(policy: str | None, as_json: bool) -> None:
    text = "none: snapshots do not expire by themselves" if policy is None else policy
    print_result(as_json, text, retention=policy)
