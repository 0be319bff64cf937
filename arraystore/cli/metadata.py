"""Metadata and feature flags of a repository: ``metadata``, ``flag``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from arraystore.cli.confirmation import confirm
from arraystore.cli.console import print_json, print_result, print_table, safe
from arraystore.cli.group import CommandGroup
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.resolve import open_repository
from arraystore.cli.settings import pair
from arraystore.errors import InvalidInputError

metadata = CommandGroup("List and change the metadata of the repository: JSON values by name.")
flags = CommandGroup("List and change the operations that the repository allows.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a value.")]


@metadata.command("list")
def list_metadata(url: Url, as_json: Json = False) -> None:
    """List the metadata of the repository."""
    values = open_repository(url).get_metadata()
    if as_json:
        print_json(values)
        return
    print_table(("name", "value"), [(name, _format(value)) for name, value in sorted(values.items())])


@metadata.command("get")
def get_metadata(url: Url, name: Name, as_json: Json = False) -> None:
    """Print a value of the metadata."""
    value = _check_present(open_repository(url).get_metadata(), name)[name]
    if as_json:
        print_json(value)
    else:
        print(safe(_format(value)))


@metadata.command("set")
def set_metadata(
    url: Url,
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="JSON, or else a string.")],
    as_json: Json = False,
) -> None:
    """Set values of the metadata, and keep all others."""
    changes = {name: _parse(text) for name, text in map(pair, values)}
    open_repository(url).update_metadata(changes)
    print_result(as_json, f"Set {', '.join(changes)}.", set=changes)


@metadata.command("delete")
def delete_metadata(url: Url, name: Name, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Delete a value of the metadata."""
    repository = open_repository(url)
    values = _check_present(repository.get_metadata(), name)
    value = values.pop(name)
    if not dry_run:
        confirm(f"delete {name!r}, which is {_format(value)}, from the metadata", yes=yes)
        repository.set_metadata(values)
    text = f"{'Dry run: would delete' if dry_run else 'Deleted'} {name}, which was {_format(value)}."
    print_result(as_json, text, deleted={name: value}, dry_run=dry_run)


def _check_present(values: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in values:
        raise InvalidInputError(f"the metadata has no {name!r}; it has {', '.join(sorted(values)) or 'nothing'}")
    return values


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Setting(StrEnum):
    """Setting of a feature flag."""

    on = "on"
    off = "off"
    default = "default"


@flags.command("list")
def list_flags(url: Url, as_json: Json = False) -> None:
    """List the operations that can be switched off, with their settings."""
    all_flags = open_repository(url).feature_flags()
    if as_json:
        print_json({flag.name: flag.enabled for flag in all_flags})
        return
    settings = {None: "", True: "on", False: "off"}
    rows = [(flag.name, "yes" if flag.enabled else "no", settings[flag.setting]) for flag in all_flags]
    print_table(("operation", "allowed", "setting"), rows)


@flags.command("set")
def set_flag(
    url: Url,
    name: Annotated[str, typer.Argument(metavar="OPERATION", help="Operation, as listed by `flag list`.")],
    setting: Annotated[Setting, typer.Argument(metavar="on|off|default", help="Setting.")],
    as_json: Json = False,
) -> None:
    """Allow an operation, switch it off, or restore its default."""
    open_repository(url).set_feature_flag(name, {"on": True, "off": False, "default": None}[setting.value])
    print_result(as_json, f"Set {name} to {setting.value}.", operation=name, setting=setting.value)
