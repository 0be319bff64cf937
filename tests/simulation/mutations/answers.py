"""Wrong ways to take an answer: a refusal is believed, or what may have been written is undone, without a look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from arraystore._commit import prepare, rebase_request
from arraystore._commit.batch import Batch
from arraystore._environment import Environment
from arraystore._format.record import Body
from arraystore._log.branch_entries import append_entry
from arraystore._log.branch_log import AppendUncertainError, BranchLog
from arraystore._log.conditional_put import put_surely, unsettled
from arraystore._log.loading import Tip
from arraystore._maintenance import rewrite
from arraystore._maintenance.rewrite import Exchange, Exchanged
from arraystore._repository import creation
from arraystore.storage.protocol import Storage
from tests.simulation.actors.workload import Workload
from tests.simulation.mutations.patching import Change, Mutation, everywhere, folded_often

__all__ = ["MUTATIONS"]

_WHERE = ("proxied",)


def _folding() -> list[Change]:
    """Fold often, into manifests that are objects of their own, so that there is something to delete."""
    return [*folded_often(), (rewrite, "MAX_MANIFEST_IN_BODY", 0), (prepare, "MAX_MANIFEST_IN_BODY", 0)]


def _compacting(workload: Workload) -> Workload:
    """Have two compact what others write."""
    return replace(
        workload,
        writers=2,
        readers=1,
        referrers=0,
        operators=0,
        expirers=0,
        collectors=0,
        compactors=2,
        turns=(6, 9),
        steps=(1, 2),
    )


async def _unread(log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = (), **_: Any) -> bytes | None:
    return await append_entry(log, tip, body, attachments, settle=False)


async def _unsettled(storage: Storage, environment: Environment, key: str, data: bytes, *_: Any) -> bool:
    return bool(await put_surely(storage, environment, key, data, unsettled))


async def _undone(log: BranchLog, batch: Sequence[Exchange], result: Exchanged) -> None:
    try:
        await _exchange(log, batch, result)
    except AppendUncertainError:
        await rewrite._discard(log.storage, batch, result)
        raise


_exchange = rewrite._exchange


async def _never_sure(log: BranchLog, tip: Tip, body: Body, attachments: tuple[bytes, ...] = (), **_: Any) -> bytes:
    found = await append_entry(log, tip, body, attachments, settle=False)
    if found is None:
        raise AppendUncertainError("nobody looks what was refused")
    return found


def _queue_forgets() -> Iterator[Change]:
    yield rebase_request, "find_own", lambda *_: None
    yield Batch, "found_in", lambda *_: None


MUTATIONS = (
    Mutation(
        "an exchange believes a refusal",
        "where a record is refused, the manifests that it names are deleted without reading it",
        lambda: [(rewrite, "append_entry", _unread)],
        _WHERE,
        settings=_folding,
        tuned=_compacting,
        runs=(("proxied", 0), ("proxied", 2)),
        breaks="retention",
    ),
    Mutation(
        "undone in doubt",
        "manifests of an exchange are deleted when it is unknown whether its record arrived",
        lambda: [(rewrite, "_exchange", _undone), (rewrite, "append_entry", _never_sure)],
        _WHERE,
        settings=_folding,
        tuned=_compacting,
        runs=(("proxied", 2), ("proxied", 17)),
        breaks="retention",
    ),
    Mutation(
        "refusals are believed",
        "what was refused as existing counts as somebody else's",
        lambda: everywhere(put_surely, _unsettled),
        _WHERE,
        runs=(("proxied", 8),),
        breaks="references",
    ),
    Mutation(
        "the queue believes a refusal",
        "who commits does not look for the record that was refused",
        _queue_forgets,
        _WHERE,
        explored=("disjoint; sent twice",),
        runs=(("proxied", 0),),
        breaks="commits",
    ),
    Mutation(
        "a creation believes a refusal",
        "who is refused `repo` as existing takes it for another's, and deletes its own first record",
        lambda: [(creation, "put_surely", _unsettled)],
        _WHERE,
        runs=(("proxied", 1), ("proxied", 2)),
        breaks="liveness",
    ),
)
"""Wrong ways to take an answer."""
