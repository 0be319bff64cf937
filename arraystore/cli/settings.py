"""Making a repository and setting it up: ``init``, ``config``, ``status``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore.cli.asking import confirm
from arraystore.cli.console import add_row, answer, make_console, make_table, plain, print_json
from arraystore.cli.group import Commands
from arraystore.cli.opening import open_repository, open_storage
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.sizes import is_size, size
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore import RepositoryConfig

__all__ = ["config", "init", "pair", "status"]

config = typer.Typer(cls=Commands, help="Show and change how the repository lays out what is written to it.")

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Configuration; may be repeated. See `arraystore config list`."),
]


def init(url: Url, settings: Settings = None, as_json: Json = False) -> None:
    """Make a new repository, with a branch main and an empty first snapshot.

    Nothing else may be there. Whether the storage can hold a repository safely is tried out, not believed.
    """
    from arraystore import Repository, RepositoryConfig

    storage = open_storage(url)
    repository = Repository.create(storage, _changed(RepositoryConfig.default(), dict(map(pair, settings or []))))
    snapshot = repository.lookup_branch("main")
    where = repository.storage.location
    answer(
        as_json, f"Made a repository at {where}, with branch main at {snapshot}.",
        location=where, id=repository.id, branch="main", snapshot=snapshot,
    )  # fmt: skip


def pair(text: str) -> tuple[str, str]:
    """Return what stands before and after the equals sign; raises `InvalidInputError` where there is none."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInputError(f"{text!r} is no setting; give NAME=VALUE")
    return name.strip(), value.strip()


def _changed(before: RepositoryConfig, changes: dict[str, str]) -> RepositoryConfig:
    values = before.to_dict() | {name: _value(value) for name, value in changes.items()}
    return type(before).from_dict(values)


def _value(text: str) -> Any:
    """Read JSON, a size such as 8MiB, or else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return size(text, option="the value") if is_size(text) else text


@config.command("list")
def list_config(url: Url, as_json: Json = False) -> None:
    """List all settings, with what each is about."""
    from arraystore import RepositoryConfig

    found = open_repository(url).config
    if as_json:
        print_json(found)
        return
    defaults = RepositoryConfig.default().to_dict()
    table = make_table("setting", "value", "default", right=("value", "default"))
    for name, value in found.to_dict().items():
        add_row(table, name, _told(value), "" if value == defaults.get(name) else _told(defaults.get(name)))
    make_console().print(table)


@config.command("get")
def get_config(
    url: Url, name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a setting.")], as_json: Json = False
) -> None:
    """Print one setting."""
    values = open_repository(url).config.to_dict()
    if name not in values:
        raise InvalidInputError(f"there is no setting {name!r}; there are {', '.join(values)}")
    if as_json:
        print_json(values[name])
    else:
        print(_told(values[name]))


@config.command("set")
def set_config(
    url: Url,
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="Sizes may be given as 8MiB.")],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Change settings; they count for what is written from now on, by sessions of repositories opened from now on."""
    repository = open_repository(url)
    before = repository.config
    after = _changed(before, dict(map(pair, settings)))
    if not dry_run:
        repository.save_config(after)
    old, new = before.to_dict(), after.to_dict()
    changes = {name: new[name] for name in new if new[name] != old.get(name)}
    said = "; ".join(f"{name}: {_told(old.get(name))} → {_told(value)}" for name, value in changes.items())
    prefix = "Dry run: would change " if dry_run else "Changed "
    answer(as_json, f"{prefix}{said}." if changes else "Nothing to change.", changed=changes, dry_run=dry_run)


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(plain(value))


ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse all commits, those of running sessions too.")]


def status(
    url: Url,
    online: Annotated[bool, typer.Option("--online", help="Allow commits again.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse all commits, of running sessions too.")
    ] = False,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="What writers are told.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Show whether the repository takes commits; --read-only and --online change that."""
    from arraystore import RepoAvailability, RepoStatus

    if online and read_only:
        raise InvalidInputError("give one of --online and --read-only")
    repository = open_repository(url)
    if online or read_only:
        wanted = RepoStatus(RepoAvailability.read_only if read_only else RepoAvailability.online, None, reason)
        if not dry_run:
            if read_only:
                confirm("refuse all commits from now on", yes=yes)
            repository.set_status(wanted)
            wanted = repository.get_status()
    else:
        wanted = repository.get_status()
    if as_json:
        print_json(wanted)
        return
    name = wanted.availability.name.replace("_", "-")
    said = f": {wanted.limited_availability_reason}" if wanted.limited_availability_reason else ""
    print(f"{'Dry run: would be ' if dry_run and (online or read_only) else ''}{name}{said}")
