"""From what stands on the command line to repositories, snapshots and sessions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arraystore.cli.console import note
from arraystore.cli.times import moment
from arraystore.errors import InvalidInputError, NotFoundError, RefNotFoundError

if TYPE_CHECKING:
    from arraystore import Repository, Session, SnapshotInfo
    from arraystore.storage import Storage

__all__ = ["Place", "newest_of", "open_repository", "open_storage", "resolve", "session_at"]

KINDS = ("branch", "tag", "snapshot")

_AT_ONCE = 16
"""Branches that are looked up at a time."""

_ANCESTOR = re.compile(r"(.+)~(\d*)")


@dataclass(frozen=True)
class Place:
    """A snapshot, and how it was named.

    Parameters
    ----------
    kind
        ``branch``, ``tag`` or ``snapshot``.
    name
        Of the branch or tag; the id of a snapshot.
    snapshot_id
        The snapshot.
    """

    kind: str
    name: str
    snapshot_id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def branch(self) -> str | None:
        """Name, if it is that of a branch."""
        return self.name if self.kind == "branch" else None

    @property
    def tag(self) -> str | None:
        """Name, if it is that of a tag."""
        return self.name if self.kind == "tag" else None

    @property
    def id(self) -> str | None:
        """Id, if it is that of a snapshot."""
        return self.name if self.kind == "snapshot" else None


def open_storage(url: str) -> Storage:
    """Make the storage that a URL names."""
    from arraystore.storage import storage_from_url

    return storage_from_url(url)


def open_repository(url: str) -> Repository:
    """Open the repository that a URL names."""
    from arraystore import Repository

    return Repository.open(open_storage(url))


def resolve(repository: Repository, name: str, *, strict: bool = False) -> Place:
    """Find what a name means: a branch, else a tag, else a snapshot.

    Parameters
    ----------
    repository
        Where to look.
    name
        May say which with ``branch:``, ``tag:`` or ``snapshot:`` in front; ``~2`` after it means two snapshots before.
    strict
        Whether a name that is both a branch and a tag is an error, as it must be where something depends on it that
        cannot be taken back; otherwise the branch is meant, and that is said.

    Raises
    ------
    RefNotFoundError
        If it is nothing.
    InvalidInputError
        If it is two things.
    """
    kind, separator, rest = name.partition(":")
    if separator and kind in KINDS:
        return Place(kind, rest, _look_up(repository, kind)(rest))
    found = [Place(kind, name, at) for kind in KINDS[:2] if (at := _try(_look_up(repository, kind), name)) is not None]
    if not found:
        return _ancestor(repository, name) or _snapshot(repository, name)
    if len(found) > 1:
        if strict:
            raise InvalidInputError(f"{name!r} is a branch and a tag; say which: branch:{name} or tag:{name}")
        note(f"{name!r} is a branch and a tag; taken as the branch (tag:{name} is the tag)")
    return found[0]


def _look_up(repository: Repository, kind: str) -> Callable[[str], str]:
    if kind == "branch":
        return repository.lookup_branch
    if kind == "tag":
        return repository.lookup_tag
    return lambda identifier: repository.lookup_snapshot(identifier).id


def _snapshot(repository: Repository, name: str) -> Place:
    try:
        return Place("snapshot", name, repository.lookup_snapshot(name).id)
    except InvalidInputError:  # no id
        raise RefNotFoundError(
            f"{name!r} is no branch, tag or snapshot of {repository.storage.location}; "
            "`arraystore branch list`, `arraystore tag list` and `arraystore log` show what there is"
        ) from None


def _ancestor(repository: Repository, name: str) -> Place | None:
    """Find what ``NAME~2`` means: the parent of the parent."""
    asked = _ANCESTOR.fullmatch(name)
    if asked is None:
        return None
    start, back = resolve(repository, asked[1]), int(asked[2] or 1)
    history = repository.ancestry(branch=start.branch, tag=start.tag, snapshot_id=start.id)
    for snapshot in itertools.islice(history, back, None):
        return Place("snapshot", snapshot.id, snapshot.id)
    raise RefNotFoundError(f"the history of {start} does not reach {back} snapshots back")


def _try(look_up: Callable[[str], str], name: str) -> str | None:
    try:
        return look_up(name)
    except (NotFoundError, InvalidInputError):  # what cannot be a name of this kind is none
        return None


def newest_of(repository: Repository, kind: str, names: Iterable[str]) -> dict[str, SnapshotInfo]:
    """Look up the snapshots of many branches or tags, some at a time; those deleted meanwhile are left out.

    Parameters
    ----------
    repository
        Where to look.
    kind
        ``branch`` or ``tag``.
    names
        What to look up.
    """
    from arraystore._runtime import run

    return run(_newest_of(repository, kind, sorted(names)))


async def _newest_of(repository: Repository, kind: str, names: Sequence[str]) -> dict[str, SnapshotInfo]:
    from arraystore._concurrency import bounded

    async def newest(name: str) -> SnapshotInfo | None:
        place = Place(kind, name, "")
        try:
            async for info in repository.async_ancestry(branch=place.branch, tag=place.tag):
                return info
        except RefNotFoundError:
            pass
        return None

    found = zip(names, await bounded(newest, names, _AT_ONCE), strict=True)
    return {name: info for name, info in found if info is not None}


def session_at(repository: Repository, name: str, as_of: str | None = None) -> Session:
    """Open a session that reads what a name means, or what a branch was at some time."""
    place = resolve(repository, name)
    if as_of is None:
        return repository.readonly_session(place.branch, tag=place.tag, snapshot_id=place.id)
    if place.branch is None:
        raise InvalidInputError(f"--as-of goes with a branch, and {place} is none")
    return repository.readonly_session(place.branch, as_of=moment(as_of, option="--as-of"))
