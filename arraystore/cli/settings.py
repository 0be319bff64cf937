"""Creation and configuration of a repository: ``init``, ``config``, ``status``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore.cli.confirmation import confirm
from arraystore.cli.console import plain, print_json, print_result, print_table
from arraystore.cli.group import Commands
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.resolve import open_repository, open_storage
from arraystore.cli.sizes import is_size, parse_size
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore import RepositoryConfig

config = typer.Typer(cls=Commands, help="List and change the configuration of the repository.")

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Configuration (may be repeated); see `arraystore config list`."),
]


def init(url: Url, settings: Settings = None, as_json: Json = False) -> None:
    """Create a repository with a branch main and an empty first snapshot.

    The location must be empty. The guarantees that the storage must provide are tested.
    """
    from arraystore import Repository, RepositoryConfig

    storage = open_storage(url)
    repository = Repository.create(storage, _changed(RepositoryConfig.default(), dict(map(pair, settings or []))))
    snapshot = repository.lookup_branch("main")
    where = repository.storage.location
    print_result(
        as_json, f"Created a repository at {where}, with branch main at {snapshot}.",
        location=where, id=repository.id, branch="main", snapshot=snapshot,
    )  # fmt: skip


def pair(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``; raises `InvalidInputError`."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInputError(f"{text!r} is not a valid setting: use NAME=VALUE")
    return name.strip(), value.strip()


def _changed(before: RepositoryConfig, changes: dict[str, str]) -> RepositoryConfig:
    values = before.to_dict() | {name: _parse(value) for name, value in changes.items()}
    return type(before).from_dict(values)


def _parse(text: str) -> Any:
    """Parse JSON, a size such as 8MiB, or else a string."""
    try:
        return json.loads(text)
    except ValueError:
        return parse_size(text, option="the value") if is_size(text) else text


@config.command("list")
def list_config(url: Url, as_json: Json = False) -> None:
    """List the settings with their values and defaults."""
    from arraystore import RepositoryConfig

    configuration = open_repository(url).config
    if as_json:
        print_json(configuration)
        return
    defaults = RepositoryConfig.default().to_dict()
    rows = [
        (name, _format(value), "" if value == defaults.get(name) else _format(defaults.get(name)))
        for name, value in configuration.to_dict().items()
    ]
    print_table(("setting", "value", "default"), rows, right=("value", "default"))


@config.command("get")
def get_config(
    url: Url, name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a setting.")], as_json: Json = False
) -> None:
    """Print the value of a setting."""
    values = open_repository(url).config.to_dict()
    if name not in values:
        raise InvalidInputError(f"unknown setting {name!r}: choose one of {', '.join(values)}")
    if as_json:
        print_json(values[name])
    else:
        print(_format(values[name]))


@config.command("set")
def set_config(
    url: Url,
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="Settings; sizes as in 8MiB.")],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Change settings, for repositories opened from now on."""
    repository = open_repository(url)
    before = repository.config
    after = _changed(before, dict(map(pair, settings)))
    if not dry_run:
        repository.save_config(after)
    old, new = before.to_dict(), after.to_dict()
    changes = {name: new[name] for name in new if new[name] != old.get(name)}
    text = "; ".join(f"{name}: {_format(old.get(name))} → {_format(value)}" for name, value in changes.items())
    prefix = "Dry run: would change " if dry_run else "Changed "
    print_result(as_json, f"{prefix}{text}." if changes else "Nothing to change.", changed=changes, dry_run=dry_run)


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(plain(value))


def status(
    url: Url,
    online: Annotated[bool, typer.Option("--online", help="Allow commits.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse all commits, those of open sessions included.")
    ] = False,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason for writers.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Show whether the repository accepts commits; change it with --read-only or --online."""
    from arraystore import RepoAvailability, RepoStatus

    if online and read_only:
        raise InvalidInputError("pass only one of --online and --read-only")
    repository = open_repository(url)
    if online or read_only:
        new_status = RepoStatus(RepoAvailability.read_only if read_only else RepoAvailability.online, None, reason)
        if not dry_run:
            if read_only:
                confirm("refuse all commits from now on", yes=yes)
            repository.set_status(new_status)
            new_status = repository.get_status()
    else:
        new_status = repository.get_status()
    if as_json:
        print_json(new_status)
        return
    name = new_status.availability.name.replace("_", "-")
    reason_text = f": {new_status.limited_availability_reason}" if new_status.limited_availability_reason else ""
    print(f"{'Dry run: would be ' if dry_run and (online or read_only) else ''}{name}{reason_text}")
