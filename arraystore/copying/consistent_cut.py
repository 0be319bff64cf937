"""Consistent cuts through a repository: the newest record of each log at one time, and the objects these reference.

Logs are listed one after the other while others write to them, so that what was listed first may be referred to, in a
newer state, by what was listed last. The cut is therefore advanced until no record within it references one outside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from arraystore._environment import current_environment
from arraystore._format.lifecycle import Origin, Reset
from arraystore._format.record import Birth, decode_body, decode_record, read_record_key, record_key
from arraystore._format.refs import branch_prefix, branches_prefix, decode_hint, name_from_key, name_in_key
from arraystore._format.repository_log import RepositoryTable, repository_log_prefix
from arraystore._log.repository_log import RepositoryLog
from arraystore._log.spans import carriers
from arraystore.errors import FormatError, ObjectNotFoundError
from arraystore.storage.protocol import Storage

__all__ = ["HINTS_PREFIX", "ConsistentCut", "LogEnds", "fix_cut", "list_ends"]

HINTS_PREFIX = "hints/"


@dataclass(frozen=True)
class LogEnds:
    """Newest records of the logs of a repository."""

    branches: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Numbers of the oldest and the newest record that there is, by branch."""
    repository: int = 0
    """Number of the newest record of the repository log, 0 if there is none."""


@dataclass(frozen=True)
class ConsistentCut:
    """Records and hints that a clone consists of."""

    ends: LogEnds
    """The newest record of each log that is copied."""
    hints: dict[str, bytes]
    """Hints, each of which names a record within the cut."""


async def list_ends(storage: Storage, repository: bytes) -> LogEnds:
    """List the logs, branches first: the repository log records the creation of a branch before the branch exists."""
    branches = await _list_branches(storage, branches_prefix(repository), "")
    newest, prefix = 0, repository_log_prefix(repository)
    async for page in storage.list(prefix):
        newest = max([newest, *(read_record_key(prefix, info.key) or 0 for info in page)])
    return LogEnds(branches, newest)


async def _list_branches(storage: Storage, prefix: str, below: str) -> dict[str, tuple[int, int]]:
    """Return the numbers of the oldest and the newest record of branches, all or one, by their names."""
    branches: dict[str, tuple[int, int]] = {}
    async for page in storage.list(prefix + below):
        for info in page:
            name = info.key[len(prefix) :].partition("/")[0]
            number = read_record_key(f"{prefix}{name}/", info.key)
            if number is not None:  # and no intent
                branch = name_from_key(name)
                branches[branch] = branches.get(branch, (number, number))[0], number
    return branches


async def fix_cut(source: Storage, repository: bytes, ends_before: LogEnds) -> ConsistentCut:
    """Read the logs until they are a consistent cut."""
    hints = await _hints(source, repository)  # first: a hint names what is there already
    branches, table = await _list_at_once(source, repository)
    looked_at = {branch: last for branch, (_, last) in ends_before.branches.items()}
    origins = [tag.origin for tag in table.tags.values()]
    origins += [row.origin for row in table.branches.values() if row.origin is not None]
    while True:
        for branch, (first, last) in list(branches.items()):
            after = looked_at.get(branch, -1)
            span = max(first, after + 1), last
            origins += [origin async for origin in _origins(source, repository, branch, span)]
            looked_at[branch] = max(after, last)
        beyond = [origin for origin in origins if origin.sequence > branches.get(origin.branch, (0, -1))[1]]
        if not beyond:
            return ConsistentCut(LogEnds(branches, table.number), hints)
        for origin in beyond:
            first, last = branches.get(origin.branch, (0, -1))
            branches[origin.branch] = first, max(last, origin.sequence)
        origins = []


async def _list_at_once(source: Storage, repository: bytes) -> tuple[dict[str, tuple[int, int]], RepositoryTable]:
    """List branches that hold all that the repository log says of them: deletions, and what a collection has read."""
    log, prefix = RepositoryLog(source, repository, current_environment()), branches_prefix(repository)
    table = await log.table()
    branches = await _list_branches(source, prefix, "")
    while (newer := await log.table()).number != table.number:
        if newer.collection != table.collection:
            branches = await _list_branches(source, prefix, "")
        else:
            for name in [name for name, row in newer.branches.items() if row.number > table.number]:
                branches |= await _list_branches(source, prefix, name_in_key(name) + "/")
        table = newer
    return branches, table


async def _hints(source: Storage, repository: bytes) -> dict[str, bytes]:
    """Read the hints that can be read."""
    hints: dict[str, bytes] = {}
    async for page in source.list(HINTS_PREFIX):
        for info in page:
            try:
                data = bytes(await source.get(info.key))
                if decode_hint(info.key, data).repository != repository:
                    continue
            except (ObjectNotFoundError, FormatError):
                continue
            hints[info.key] = data
    return hints


async def _origins(source: Storage, repository: bytes, branch: str, span: tuple[int, int]) -> AsyncIterator[Origin]:
    """Yield the origins of the snapshots that a branch took over from others, in some of its records."""
    prefix = branch_prefix(repository, branch)
    first, newest = span
    for number in carriers(*span):
        key = record_key(prefix, number)
        try:
            record = decode_record(key, await source.get(key), branch, number, repository)
        except ObjectNotFoundError:  # expired since it was listed, and all before it
            return
        for at, body in sorted(record.bodies().items()):
            if first <= at <= newest:
                entry = decode_body(record_key(prefix, at), body, branch, at)
                if isinstance(entry, Birth | Reset) and entry.origin is not None:
                    yield entry.origin
        newest = number - len(record.previous) - 1
