"""Resolution of command line arguments to repositories, snapshots and sessions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arraystore.cli.console import print_note
from arraystore.cli.times import parse_time
from arraystore.errors import InvalidInputError, NotFoundError, RefNotFoundError

if TYPE_CHECKING:
    from arraystore import Repository, Session
    from arraystore._history.operations_log import Update
    from arraystore.storage import CountingStorage, Counts, Storage

KINDS = ("branch", "tag", "snapshot")

_ANCESTOR = re.compile(r"(.+)~(\d*)")
_FARTHEST = 1 << 62
"""Longer than any history."""
_PLACE = re.compile(r"(?:branch:)?(.+)@\{(\d+)\}")

MOVES = {
    "NewCommit": "commit",
    "CommitAmended": "amend",
    "BranchCreated": "create",
    "BranchReset": "reset",
    "BranchDeleted": "delete",
}
"""Moves of a branch by the kind of update."""


@dataclass(frozen=True)
class ResolvedRef:
    """Branch, tag or snapshot id, with its snapshot."""

    kind: str
    """Kind: ``branch``, ``tag`` or ``snapshot``."""
    name: str
    """Name of the branch or tag, or id of the snapshot."""
    snapshot_id: str
    """Id of the snapshot."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def branch(self) -> str | None:
        """Name of the branch, None for another kind."""
        return self.name if self.kind == "branch" else None

    @property
    def tag(self) -> str | None:
        """Name of the tag, None for another kind."""
        return self.name if self.kind == "tag" else None

    @property
    def id(self) -> str | None:
        """Id of the snapshot, None for another kind."""
        return self.name if self.kind == "snapshot" else None


_counters: ContextVar[list[CountingStorage] | None] = ContextVar("arraystore_cli_counters", default=None)
"""Storages opened since `count_requests`, None unless requests are counted."""


def open_storage(url: str) -> Storage:
    """Create the storage of a URL."""
    from arraystore.storage import CountingStorage, storage_from_url

    storage, counters = storage_from_url(url), _counters.get()
    if counters is None:
        return storage
    counters.append(CountingStorage(storage, log=False))
    return counters[-1]


@contextmanager
def count_requests() -> Iterator[Callable[[], Counts]]:
    """Count the requests to storages that are opened within the block; yields a function that returns the counts."""
    from arraystore.storage import Counts

    counters: list[CountingStorage] = []
    token = _counters.set(counters)
    try:
        yield lambda: sum((each.counts for each in counters), Counts())
    finally:
        _counters.reset(token)


def open_repository(url: str, authorize: Sequence[str] | None = None) -> Repository:
    """Open the repository of a URL, and containers of virtual chunks with credentials of the environment."""
    from arraystore import Repository

    return Repository.open(open_storage(url), authorize_virtual_chunk_access=dict.fromkeys(authorize or ()))


def resolve(repository: Repository, name: str, *, strict: bool = False) -> ResolvedRef:
    """Resolve a name to a branch, tag or snapshot, in this order; raises `RefNotFoundError`.

    ``branch:``, ``tag:`` or ``snapshot:`` in front select a kind, ``~2`` at the end the parent of the parent, and
    ``@{2}`` the place of a branch before its last two moves, as `arraystore reflog` numbers them.  With `strict`, a
    name of both a branch and a tag raises `InvalidInputError`; otherwise a note is printed.
    """
    kind, separator, rest = name.partition(":")
    if separator and kind in KINDS:
        return ResolvedRef(kind, rest, _look_up_function(repository, kind)(rest))
    candidates = [
        ResolvedRef(kind, name, at)
        for kind in KINDS[:2]
        if (at := _look_up_or_none(_look_up_function(repository, kind), name)) is not None
    ]
    if not candidates:
        return _ancestor(repository, name) or _place(repository, name) or _snapshot(repository, name)
    if len(candidates) > 1:
        if strict:
            raise InvalidInputError(f"{name!r} is both a branch and a tag: use branch:{name} or tag:{name}")
        print_note(f"{name!r} is both a branch and a tag; using the branch (use tag:{name} for the tag)")
    return candidates[0]


def _look_up_function(repository: Repository, kind: str) -> Callable[[str], str]:
    if kind == "branch":
        return repository.lookup_branch
    if kind == "tag":
        return repository.lookup_tag
    return lambda identifier: repository.lookup_snapshot(identifier).id


def _snapshot(repository: Repository, name: str) -> ResolvedRef:
    try:
        return ResolvedRef("snapshot", name, repository.lookup_snapshot(name).id)
    except InvalidInputError:  # not an id
        raise RefNotFoundError(
            f"{name!r} is not a branch, tag or snapshot of {repository.storage.location}; "
            "see `arraystore branch list`, `arraystore tag list` and `arraystore log`"
        ) from None


def _ancestor(repository: Repository, name: str) -> ResolvedRef | None:
    """Resolve ``NAME~2`` to the parent of the parent of a ref, None for any other name."""
    match = _ANCESTOR.fullmatch(name)
    if match is None:
        return None
    start, back = resolve(repository, match[1]), min(int(match[2] or 1), _FARTHEST)
    history = repository.ancestry(branch=start.branch, tag=start.tag, snapshot_id=start.id)
    for snapshot in itertools.islice(history, back, None):
        return ResolvedRef("snapshot", snapshot.id, snapshot.id)
    raise RefNotFoundError(f"the history of {start} has fewer than {back} snapshots before its tip")


def moves_of(repository: Repository, branch: str) -> Iterator[Update]:
    """Yield the moves of a branch, the newest first."""
    return (each for each in repository.ops_log() if each.branch == branch and each.kind.value in MOVES)


def _place(repository: Repository, name: str) -> ResolvedRef | None:
    """Resolve ``BRANCH@{2}`` to the snapshot where a branch was before its last two moves, None for any other name."""
    match = _PLACE.fullmatch(name)
    if match is None:
        return None
    back = min(int(match[2]), _FARTHEST)
    places = [each.details.get("snapshot") for each in itertools.islice(moves_of(repository, match[1]), back + 1)]
    if len(places) <= back:
        count = f"the reflog of branch {match[1]!r} has {len(places)} places"
        raise RefNotFoundError(f"{count}, so {name!r} is none of them; see `arraystore reflog`")
    if places[-1] is None:
        raise RefNotFoundError(f"{name!r} is the deletion of the branch; use the place before it")
    return ResolvedRef("snapshot", places[-1], places[-1])


def _look_up_or_none(look_up: Callable[[str], str], name: str) -> str | None:
    try:
        return look_up(name)
    except (NotFoundError, InvalidInputError):  # an invalid name does not exist
        return None


def open_session(repository: Repository, name: str, as_of: str | None = None) -> Session:
    """Open a read-only session at a ref, or at a branch as of a time."""
    ref = resolve(repository, name)
    if as_of is None:
        return repository.readonly_session(ref.branch, tag=ref.tag, snapshot_id=ref.id)
    if ref.branch is None:
        raise InvalidInputError(f"--as-of needs a branch, and {ref} is not a branch")
    return repository.readonly_session(ref.branch, as_of=parse_time(as_of, option="--as-of"))
