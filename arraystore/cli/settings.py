"""Creation and configuration of a repository: ``init``, ``config``, ``status``, ``set-status``."""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arraystore.cli.confirmation import confirm
from arraystore.cli.console import plain, print_json, print_pairs, print_result, print_table, safe
from arraystore.cli.group import CommandGroup
from arraystore.cli.options import DryRun, Json, Url, Yes
from arraystore.cli.resolve import open_repository, open_storage
from arraystore.cli.sizes import is_size, parse_size
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    from arraystore import RepoAvailability, Repository, RepositoryConfig

config = CommandGroup("List and change the configuration of the repository.")

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
        print(safe(_format(values[name])))


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


def status(url: Url, as_json: Json = False) -> None:
    """Show where the repository is, whether it accepts commits, its branches and its retention policy."""
    from arraystore._runtime import run

    repository = open_repository(url)
    found = run(_status_of(repository))
    if as_json:
        print_json(found)
        return
    current = found["status"]
    reason = f": {current.limited_availability_reason}" if current.limited_availability_reason else ""
    print_pairs(
        [
            ("repository", found["location"]),
            ("id", found["id"]),
            ("status", f"{_name_of(current.availability)}{reason}"),
            ("branches", ", ".join(found["branches"])),
            ("tags", ", ".join(found["tags"]) or "none"),
            ("retention", found["retention"] or "none: snapshots do not expire by themselves"),
        ]
    )


async def _status_of(repository: Repository) -> dict[str, Any]:
    names = await asyncio.gather(
        repository.get_status_async(), repository.list_branches_async(), repository.list_tags_async(),
        repository.get_retention_async(),
    )  # fmt: skip
    current, branches, tags, retention = names
    return {
        "location": repository.storage.location, "id": repository.id, "status": current,
        "branches": sorted(branches), "tags": sorted(tags), "retention": retention,
    }  # fmt: skip


def _name_of(availability: RepoAvailability) -> str:
    return availability.name.replace("_", "-")


class Availability(StrEnum):
    """Availability that a repository may be set to."""

    online = "online"
    read_only = "read-only"


def set_status(
    url: Url,
    availability: Annotated[
        Availability, typer.Argument(metavar="STATUS", help="online or read-only; read-only refuses all commits.")
    ],
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason for writers.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Let the repository accept commits, or refuse them, those of open sessions included."""
    from arraystore import RepoAvailability, RepoStatus

    repository = open_repository(url)
    closes = availability is Availability.read_only
    new_status = RepoStatus(RepoAvailability.read_only if closes else RepoAvailability.online, None, reason)
    if not dry_run:
        if closes:
            confirm("refuse all commits from now on", yes=yes)
        repository.set_status(new_status)
        new_status = repository.get_status()
    name = _name_of(new_status.availability)
    prefix = "Dry run: would be " if dry_run else "The repository is "
    print_result(as_json, f"{prefix}{name}.", status=new_status, dry_run=dry_run)
