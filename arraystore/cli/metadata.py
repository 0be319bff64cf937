"""What a repository says of itself, and what it allows: ``metadata``, ``flag``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from arraystore.cli.asking import confirm
from arraystore.cli.console import add_row, answer, make_console, make_table, print_json
from arraystore.cli.group import Commands
from arraystore.cli.opening import open_repository
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.settings import pair
from arraystore.errors import InvalidInputError

__all__ = ["flags", "metadata"]

metadata = typer.Typer(cls=Commands, help="Show and change the metadata of the repository: JSON values by name.")
flags = typer.Typer(cls=Commands, help="Show and change which operations the repository allows.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a value.")]


@metadata.command("list")
def list_metadata(url: Url, as_json: Json = False) -> None:
    """List all metadata of the repository."""
    found = open_repository(url).get_metadata()
    if as_json:
        print_json(found)
        return
    table = make_table("name", "value")
    for name, value in sorted(found.items()):
        add_row(table, name, _text(value))
    make_console().print(table)


@metadata.command("get")
def get_metadata(url: Url, name: Name, as_json: Json = False) -> None:
    """Print one value of the metadata."""
    found = _present(open_repository(url).get_metadata(), name)[name]
    if as_json:
        print_json(found)
    else:
        print(_text(found))


@metadata.command("set")
def set_metadata(
    url: Url,
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="JSON, or else a text.")],
    as_json: Json = False,
) -> None:
    """Set some of the metadata; the rest stays."""
    changes = {name: _value(text) for name, text in map(pair, values)}
    open_repository(url).update_metadata(changes)
    answer(as_json, f"Set {', '.join(changes)}.", set=changes)


@metadata.command("delete")
def delete_metadata(url: Url, name: Name, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Delete one value of the metadata."""
    repository = open_repository(url)
    found = _present(repository.get_metadata(), name)
    value = found.pop(name)
    if not dry_run:
        confirm(f"delete {name!r}, which is {_text(value)}, from the metadata", yes=yes)
        repository.set_metadata(found)
    said = f"{'Dry run: would delete' if dry_run else 'Deleted'} {name}, which was {_text(value)}."
    answer(as_json, said, deleted={name: value}, dry_run=dry_run)


def _present(found: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in found:
        raise InvalidInputError(f"the metadata has no {name!r}; it has {', '.join(sorted(found)) or 'nothing'}")
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Setting(StrEnum):
    """What may be said of an operation."""

    on = "on"
    off = "off"
    default = "default"


@flags.command("list")
def list_flags(url: Url, as_json: Json = False) -> None:
    """List the operations that can be switched off, and whether they are."""
    found = open_repository(url).feature_flags()
    if as_json:
        print_json({flag.name: flag.enabled for flag in found})
        return
    table = make_table("operation", "allowed", "said")
    for flag in found:
        said = "" if flag.setting is None else "on" if flag.setting else "off"
        add_row(table, flag.name, "yes" if flag.enabled else "no", said)
    make_console().print(table)


@flags.command("set")
def set_flag(
    url: Url,
    name: Annotated[str, typer.Argument(metavar="OPERATION", help="One of those that `flag list` shows.")],
    setting: Annotated[Setting, typer.Argument(metavar="on|off|default", help="Whether it is allowed.")],
    as_json: Json = False,
) -> None:
    """Allow an operation, switch it off, or leave it at its default."""
    open_repository(url).set_feature_flag(name, {"on": True, "off": False, "default": None}[setting.value])
    answer(as_json, f"Set {name} to {setting.value}.", operation=name, setting=setting.value)
