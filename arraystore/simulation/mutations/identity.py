"""Wrong ways to say to which repository a log belongs, and which record comes before each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from arraystore.commit.chain import LogChain
from arraystore.commit.log import BranchLog
from arraystore.commit.repository_log import RepositoryLog
from arraystore.format import record, repository_log
from arraystore.format.digest import DIGEST_BYTES
from arraystore.format.ids import ID_BYTES
from arraystore.format.record import Record, encode_record
from arraystore.format.refs import Hint, encode_hint, refs_prefix
from arraystore.format.repository_log import RepositoryRecord, encode_repository_record
from arraystore.simulation.mutations.patching import Change, Mutation, everywhere

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


async def _before_that(log: BranchLog, sequence: int) -> bytes:
    return await _digest(log, max(sequence - 1, 0))


_digest = BranchLog._digest  # pyright: ignore[reportPrivateUsage]


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
    ),
    Mutation(
        "records have no owner",
        "records do not name the repository, and nobody looks for that",
        _unowned,
        ("calm",),
        explored=("disjoint",),
    ),
    Mutation(
        "entries have no owner",
        "records of the repository log do not name the repository, and nobody looks for that",
        _unowned_entries,
        ("lifecycle",),
        explored=("branch",),
    ),
    Mutation(
        "hints have no owner",
        "hints do not name the repository",
        lambda: everywhere(encode_hint, _hint_of_nobody),
        ("calm",),
        explored=("checkpoint",),
    ),
    Mutation(
        "records name no predecessor",
        "a record names the one before the last as the one that it goes on from, and nobody compares",
        _unlinked,
        ("calm",),
        explored=("disjoint",),
    ),
    Mutation(
        "entries name no predecessor",
        "records of the repository log name nothing that they go on from, and nobody compares",
        _unlinked_entries,
        ("lifecycle",),
        explored=("branch",),
    ),
)
"""Wrong ways to name a repository, and a predecessor."""
