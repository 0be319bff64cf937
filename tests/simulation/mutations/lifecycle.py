"""Wrong ways to collect garbage, to let snapshots expire, and to bring them back: each part of the fence left out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from arraystore._commit import fencing, intent_queue, intent_tracking, prepare, rebase_step
from arraystore._commit.prepare import upload
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_step import step
from arraystore._context.context import Context
from arraystore._environment import Environment
from arraystore._format.ids import CheckpointId, SnapshotId
from arraystore._format.lifecycle import NO_FENCE, Origin
from arraystore._format.record import Birth, Record, encode_body
from arraystore._format.repository_log import BranchRow, RepositoryTable
from arraystore._format.snapshot import checkpoint_key
from arraystore._history import pinning
from arraystore._log import ancestry, branch_entries, status
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import Tip, load_tip, refresh
from arraystore._log.retained_snapshots import RetainedHistory
from arraystore._log.state import SnapshotState
from arraystore._maintenance import expire, rewrite
from arraystore._maintenance.checkpoints import encode_state
from arraystore._maintenance.collection import collect, fence
from arraystore._maintenance.collection.sweep import Listing
from arraystore._maintenance.collection.trace import Trace
from arraystore._maintenance.rewrite import Exchange, Exchanged
from arraystore._maintenance.scope import MaintenanceScope
from arraystore._repository import refs
from arraystore.errors import ArrayStoreError
from arraystore.simulation.faults import Faults
from tests.simulation.actors.workload import Workload
from tests.simulation.mutations.patching import Change, Mutation, all_outside, everywhere, folded_often, patched

__all__ = ["MUTATIONS"]

_WHERE = ("lifecycle",)


def _if_open(prepared: Prepared, state: SnapshotState) -> ArrayStoreError | None:
    return status.check_open(state)


def _crowded(workload: Workload) -> Workload:
    """Have many intents queued while garbage is collected."""
    return replace(
        workload,
        writers=10,
        shared=1,
        turns=(4, 6),
        steps=(1, 1),
        think=0.05,
        operations={"write": 10.0},
        solvers={"detector": 1.0},
        collectors=2,
        operators=0,
        lingering=0.0,
    )


def _pressed(workload: Workload) -> Workload:
    """Have little written, and much collected."""
    return replace(workload, writers=1, readers=0, turns=(6, 9), operators=1, expirers=2, collectors=3, compactors=1)


def _forgetful(workload: Workload) -> Workload:
    """Have snapshots come and go."""
    return replace(workload, writers=1, readers=0, turns=(6, 9), operators=3, expirers=1, collectors=2, lingering=0.0)


def _announcing(workload: Workload) -> Workload:
    """Have snapshots come and go all the time, and as many collections."""
    calm = replace(_forgetful(workload), flushing=0.0, unique=0.0, transplanters=0)
    return replace(calm, operators=5, expirers=2, collectors=3, think=0.5, turns=(9, 12))


def _rewriting(workload: Workload) -> Workload:
    """Have a branch compacted and collected all the time."""
    few = replace(workload, writers=2, readers=0, referrers=0, operators=0, expirers=0, turns=(6, 9), think=0.3)
    return replace(few, compactors=3, collectors=3, lingering=0.0, other_branches=0.0)


def _losing_parents(workload: Workload) -> Workload:
    """Have snapshots flushed, and expire, and branches go on from what is left."""
    few = replace(workload, writers=3, readers=1, referrers=2, turns=(6, 9), flushing=0.5, other_branches=0.5)
    return replace(few, operators=2, expirers=2, collectors=0, compactors=0, lingering=0.0)


async def _exchanged_slowly(log: BranchLog, batch: Sequence[Exchange], result: Exchanged) -> None:
    await log.environment.sleep(2.0 * log.environment.random())
    await _exchange(log, batch, result)


_exchange = rewrite._exchange  # pyright: ignore[reportPrivateUsage]


def _slow_exchanges() -> Iterable[Change]:
    return [*folded_often(), (rewrite, "_exchange", _exchanged_slowly), (rewrite, "MAX_MANIFEST_IN_BODY", 0)]


async def _all_but_main(log: BranchLog, tip: Tip, decide: Callable[[Tip], Any]) -> Tip:
    if log.branch == "main":
        return await refresh(log, tip)
    return await _append_when(log, tip, decide)


_append_when = branch_entries.append_when


async def _tips_before(scope: MaintenanceScope, watermark: bytes) -> tuple[RepositoryTable, dict[str, Tip]]:
    tips = await scope.tips(await scope.repository_log.table())
    table, _ = await _raise_fence(scope, watermark)
    return table, tips


_raise_fence = fence.raise_fence


async def _unpublished(scope: MaintenanceScope, watermark: bytes) -> tuple[RepositoryTable, dict[str, Tip]]:
    table, tips = await _raise_fence(scope, watermark)
    return replace(table, watermark=watermark), tips


async def _all_of_it(self: Trace, origin: Origin, retained: dict[str, RetainedHistory]) -> None:
    self._report("snapshots", origin.checkpoint)
    await self._states([origin.checkpoint])
    for name, part in retained.items():
        await self._of_log(self._scope.log(name), part)


async def _look_first(context: Context, state: SnapshotState) -> bytes:
    await pinning.check_kept(context, state)
    await context.environment.sleep(5.0 * context.environment.random())  # as a slow process would
    context.environment.after((await context.repository_log.table()).watermark)
    identifier = CheckpointId(context.environment.new_id())
    key = checkpoint_key(identifier)
    await upload(context.storage, [(key, await encode_state(context.log(state.branch), key, state))])
    return identifier


async def _slow(context: Context, state: SnapshotState) -> bytes:
    identifier = await _announce(context, state)
    await context.environment.sleep(4.0 * context.environment.random())
    return identifier


_announce = pinning.announce


async def _nothing(*_: Any) -> None:
    return None


async def _no_roots(*_: Any) -> list[Any]:
    return []


def _for_ever(self: Listing, storage: Any, kind: str, after: bytes | None, before: bytes) -> None:
    _listing(self, storage, kind, after, b"\xff" * len(before))


_listing = Listing.__init__


async def _unfenced(log: BranchLog, row: BranchRow) -> Tip:
    assert row.snapshot is not None
    birth = Birth(row.snapshot, row.parent, log.environment.now_us(), row.origin, NO_FENCE, row.number)
    await log.append(Record(log.branch, 0, encode_body(0, birth, log.branch)))
    return await load_tip(log)


def _without_tags(self: Any, name: str, retained: Any, stay: set[SnapshotId], still: Any) -> Awaitable[Any]:
    tips = {tip.state.snapshot for tip in self._left.values()}
    found: Awaitable[Any] = _cut(
        self, name, retained, stay - ({tag.snapshot for tag in self._tags.values()} - tips), still
    )
    return found


_cut = expire._Planning._cut  # pyright: ignore[reportPrivateUsage]
_Run = collect._Run  # pyright: ignore[reportPrivateUsage]


async def _unconditionally(log: BranchLog, repository_log: Any, tip: Tip, check: Any) -> Tip:
    return await _delete_branch(log, repository_log, tip, lambda state: None)


_delete_branch = branch_entries.delete_branch


def _ageless(*arguments: Any) -> Any:
    """Let a leader rebase whatever it finds, however old what that brings in is."""
    with patched((rebase_step, "admission_error", _if_open)):
        return step(*arguments)


async def _fenced_slowly(log: BranchLog, tip: Tip, decide: Callable[[Tip], Any]) -> Tip:
    await log.environment.sleep(4.0 * log.environment.random())
    return await _append_when(log, tip, decide)


def _slow_all_around() -> Iterable[Change]:
    return [(fence, "append_when", _fenced_slowly), (pinning, "announce", _slow)]


def _listed_late(faults: Faults) -> Faults:
    return replace(Faults.none(), late_listings=10.0, until=faults.until if faults.of_requests else 60.0)


def _all_attached() -> Iterable[Change]:
    return [(prepare, "MAX_MANIFEST_IN_BODY", 0), (prepare, "fits_body", lambda log: False)]


MUTATIONS = (
    Mutation(
        "watermark is ignored",
        "commits are taken whatever they bring in, however old that is",
        lambda: everywhere(fencing.admission_error, _if_open),
        _WHERE,
        runs=(("lifecycle", 4), ("lifecycle", 6)),
        breaks="history",
    ),
    Mutation(
        "leaders ignore the watermark",
        "who commits for others does not look how old is what these bring in",
        lambda: [(intent_queue, "step", _ageless), (intent_tracking, "step", _ageless)],
        _WHERE,
        tuned=_crowded,
        runs=(("lifecycle", 5),),
        breaks="history",
    ),
    Mutation(
        "rewrites ignore the watermark",
        "folds and compactions put manifests and packs in place that may have been deleted",
        lambda: [(Exchange, "oldest", None)],
        _WHERE,
        settings=_slow_exchanges,
        tuned=_rewriting,
        runs=(("lifecycle", 0), ("lifecycle", 2)),
        breaks="history",
    ),
    Mutation(
        "lost histories end",
        "nobody goes on at what is left of a history where the parent of a snapshot expired unseen",
        lambda: [(ancestry._Part, "left_before", _nothing)],  # pyright: ignore[reportPrivateUsage]
        _WHERE,
        tuned=_losing_parents,
        runs=(("lifecycle", 179),),
        breaks="reads",
    ),
    Mutation(
        "a branch is not fenced",
        "a collection publishes its watermark, and puts it into the logs of all branches but one",
        lambda: [(fence, "append_when", _all_but_main)],
        _WHERE,
        runs=(("lifecycle", 5), ("lifecycle", 6)),
        breaks="retention",
    ),
    Mutation(
        "fenced too late",
        "a collection looks first at what there is, and puts its watermark into the logs then",
        lambda: [(collect, "raise_fence", _tips_before)],
        _WHERE,
        runs=(("lifecycle", 4), ("lifecycle", 9)),
        breaks="retention",
    ),
    Mutation(
        "born without a fence",
        "a new branch takes commits whatever they bring in",
        lambda: [(branch_entries, "_born", _unfenced)],
        _WHERE,
        runs=(("lifecycle", 0), ("lifecycle", 1)),
        breaks="references",
    ),
    Mutation(
        "ids do not advance",
        "a process whose clock is behind goes on to make ids below the watermark",
        lambda: [(Environment, "after", lambda self, watermark: None)],
        _WHERE,
        runs=(("lifecycle", 4), ("lifecycle", 5)),
        breaks="retention",
    ),
    Mutation(
        "new objects are garbage",
        "a collection deletes what nothing references yet, above its watermark, too",
        lambda: [(Listing, "__init__", _for_ever)],
        _WHERE,
        runs=(("lifecycle", 0),),
        breaks="references",
    ),
    Mutation(
        "early finds are forgotten",
        "a collection does not tell the next one what is needed of what was too new for it",
        lambda: [(_Run, "_note_early", lambda self, ids: None)],
        _WHERE,
        runs=(("lifecycle", 0), ("lifecycle", 4)),
        breaks="retention",
    ),
    Mutation(
        "looked at before it is announced",
        "whoever brings a snapshot back looks whether it is kept, and announces it afterwards",
        lambda: [(pinning, "announce", _look_first)],
        _WHERE,
        tuned=_forgetful,
        runs=(("lifecycle", 9),),
        breaks="retention",
    ),
    Mutation(
        "announced without a look",
        "a snapshot is brought back whether it is still kept or not",
        lambda: [(pinning, "check_kept", _nothing)],
        _WHERE,
        runs=(("lifecycle", 73),),
        breaks="retention",
    ),
    Mutation(
        "activated however old",
        "an announcement counts although a collection has begun since",
        lambda: [(refs, "_check_new", lambda origin, watermark: None)],
        _WHERE,
        runs=(("lifecycle", 1), ("lifecycle", 19)),
        breaks="references",
    ),
    Mutation(
        "announcements are no roots",
        "a collection does not keep what is announced",
        lambda: [(_Run, "_announced", _no_roots)],
        _WHERE,
        settings=lambda: [(pinning, "announce", _slow)],
        tuned=_forgetful,
        runs=(("lifecycle", 16),),
        breaks="retention",
    ),
    Mutation(
        "listings are believed",
        "a collection does not wait until listings show what was announced before its fences",
        lambda: [(_Run, "_outwait_listings", _nothing)],
        _WHERE,
        settings=_slow_all_around,
        tuned=_announcing,
        spoiled=_listed_late,
        runs=(("lifecycle", 53),),
        breaks="retention",
    ),
    Mutation(
        "a deletion forgets its condition",
        "a branch that is to be deleted if it stands at a snapshot is deleted wherever it stands",
        lambda: [(branch_entries, "delete_branch", _unconditionally)],
        _WHERE,
        tuned=lambda workload: replace(workload, operators=3, expirers=1, other_branches=0.7, think=0.3),
        runs=(("lifecycle", 3), ("lifecycle", 24)),
        breaks="references",
    ),
    Mutation(
        "watermarks fall",
        "a collection by a slow clock takes what an earlier one has left below its watermark for announced",
        lambda: [(collect, "raise_fence", _unpublished), (Trace, "announced", _all_of_it)],
        ("clocks",),
        settings=all_outside,
        tuned=_pressed,
        runs=(("clocks", 89),),
        breaks="liveness",
    ),
    Mutation(
        "tags do not keep",
        "snapshots expire that tags name",
        lambda: [(expire._Planning, "_cut", _without_tags)],  # pyright: ignore[reportPrivateUsage]
        _WHERE,
        runs=(("lifecycle", 14), ("lifecycle", 19)),
        breaks="retention",
    ),
    Mutation(
        "attachments go with their records",
        "manifests that are attached to records get no objects of their own before these are deleted",
        lambda: [(collect, "detach", _nothing)],
        ("hours",),
        settings=_all_attached,
        runs=(("hours", 0), ("hours", 3)),
        breaks="retention",
    ),
    Mutation(
        "closed is open",
        "commits are taken while the repository is read-only, or the branch deleted",
        lambda: everywhere(status.check_open, lambda state: None),
        _WHERE,
        runs=(("lifecycle", 5),),
        breaks="references",
    ),
)
"""Wrong ways to forget."""
