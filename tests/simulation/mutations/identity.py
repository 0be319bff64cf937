"""Wrong ways to say to which repository a log belongs and which record comes before each, and not to look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from arraystore._format import record, repository_log
from arraystore._format.digest import DIGEST_BYTES
from arraystore._format.ids import ID_BYTES
from arraystore._format.record import Record, encode_record
from arraystore._format.refs import REPOSITORY_KEY, Hint, decode_repository, encode_hint, refs_prefix
from arraystore._format.repository_log import RepositoryRecord, encode_repository_record
from arraystore._log import branch_log
from arraystore._log.branch_log import BranchLog
from arraystore._log.chain import LogChain
from arraystore._log.presence import check_repository, read_hint
from arraystore._log.repository_log import RepositoryLog
from arraystore.storage.protocol import Storage
from tests.simulation.mutations.patching import Change, Mutation, everywhere

__all__ = ["MUTATIONS"]

_NOBODY = bytes(ID_BYTES)


def _nothing(*_: Any) -> None:
    """Check nothing."""


def _of_nobody(written: Record) -> bytes:
    return encode_record(replace(written, repository=_NOBODY))


def _entry_of_nobody(written: RepositoryRecord) -> bytes:
    return encode_repository_record(replace(written, repository=_NOBODY))


def _hint_of_nobody(written: Hint) -> bytes:
    return encode_hint(replace(written, repository=_NOBODY))


def _from_nothing(written: RepositoryRecord) -> bytes:
    return encode_repository_record(replace(written, before=bytes(DIGEST_BYTES)))


async def _before_that(written: BranchLog, sequence: int) -> bytes:
    return await _digest(written, max(sequence - 1, 0))


_digest = BranchLog._digest  # pyright: ignore[reportPrivateUsage]


# -- who does not look ----------------------------------------------------------------------------------------------


def _remember(chain: LogChain, read: Record) -> None:
    chain._remember(read.sequence, read.digest)  # pyright: ignore[reportPrivateUsage]


async def _believed(storage: Storage, branch: str) -> Hint | None:
    found = await read_hint(storage, branch)
    here = decode_repository(REPOSITORY_KEY, await storage.get(REPOSITORY_KEY)).id
    return None if found is None else replace(found, repository=here)


async def _unchecked(*_: Any, **__: Any) -> None:
    """Check nothing."""


# -- who does not write it --------------------------------------------------------------------------------------------


def _unowned() -> Iterator[Change]:
    yield from everywhere(encode_record, _of_nobody)
    yield record, "check_owner", _nothing


def _unowned_entries() -> Iterator[Change]:
    yield from everywhere(encode_repository_record, _entry_of_nobody)
    yield repository_log, "check_owner", _nothing


def _unlinked() -> Iterator[Change]:
    yield BranchLog, "_digest", _before_that
    yield LogChain, "link", _nothing


def _unlinked_entries() -> Iterator[Change]:
    yield from everywhere(encode_repository_record, _from_nothing)
    yield RepositoryLog, "_check_link", _nothing


MUTATIONS = (
    Mutation(
        "logs have no owner",
        "the keys of logs do not name the repository",
        lambda: everywhere(refs_prefix, lambda repository: "refs/"),
        ("calm",),
        explored=("disjoint",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="commits",
    ),
    Mutation(
        "records have no owner",
        "records do not name the repository, and nobody looks for that",
        _unowned,
        ("calm",),
        explored=("disjoint",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="history",
    ),
    Mutation(
        "entries have no owner",
        "records of the repository log do not name the repository, and nobody looks for that",
        _unowned_entries,
        ("lifecycle",),
        explored=("branch",),
        runs=(("lifecycle", 0), ("lifecycle", 1)),
        breaks="references",
    ),
    Mutation(
        "hints have no owner",
        "hints do not name the repository",
        lambda: everywhere(encode_hint, _hint_of_nobody),
        ("calm",),
        explored=("checkpoint",),
        runs=(("calm", 1), ("calm", 4)),
        breaks="derived",
    ),
    Mutation(
        "records name no predecessor",
        "a record names the one before the last as the one that it goes on from, and nobody compares",
        _unlinked,
        ("calm",),
        explored=("disjoint",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="history",
    ),
    Mutation(
        "entries name no predecessor",
        "records of the repository log name nothing that they go on from, and nobody compares",
        _unlinked_entries,
        ("lifecycle",),
        explored=("branch",),
        runs=(("lifecycle", 0), ("lifecycle", 1)),
        breaks="references",
    ),
    Mutation(
        "a lost record is the end",
        "where single records are asked for, nobody looks behind the first one that is missing",
        lambda: [(branch_log, "_NEAR", ()), (branch_log, "_FAR", ())],
        (),
        explored=("record lost",),
        breaks="real time",
    ),
    Mutation(
        "holes are filled",
        "who has written a record does not look whether the next one was there before",
        lambda: [(BranchLog, "_check_beyond", _unchecked)],
        (),
        explored=("hole",),
        breaks="commits",
    ),
    Mutation(
        "predecessors are not compared",
        "a record counts as the next one whatever it goes on from",
        lambda: [(LogChain, "link", _remember)],
        (),
        explored=("hole",),
        breaks="commits",
    ),
    Mutation(
        "a repository is permanent",
        "who commits does not look whether the repository is still there",
        lambda: everywhere(check_repository, _unchecked),
        (),
        explored=("replaced",),
        breaks="commits",
    ),
    Mutation(
        "hints of others are believed",
        "a hint counts whatever repository it names",
        lambda: everywhere(read_hint, _believed),
        (),
        explored=("hint of another",),
        breaks="liveness",
    ),
)
"""Wrong ways to name a repository, and a predecessor."""
