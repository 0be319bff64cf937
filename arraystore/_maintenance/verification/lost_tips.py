"""Evidence of lost newest records of logs: objects that name a record after the newest one.

No other record repeats the newest one, so a log without it reads as if it had never been written.  But who has read it
may have left an object that names it: a collection, a proposed transaction, or a checkpoint that nothing leads to.  And
the repository log says that a branch is deleted only after the log of the branch does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from arraystore._environment import Environment
from arraystore._format.collection import Collection, collection_key
from arraystore._format.ids import CheckpointId, split_ids
from arraystore._format.repository_log import RepositoryTable
from arraystore._format.snapshot import checkpoint_key
from arraystore._log.branch_log import BranchLog
from arraystore._log.loading import load_checkpoint
from arraystore._log.state import SnapshotState
from arraystore._maintenance.verification.inventory import Audit
from arraystore._maintenance.verification.roots import LogRoot
from arraystore._runtime.concurrency import bounded
from arraystore.errors import FormatError, ObjectNotFoundError

_MOST_CHECKPOINTS = 64
"""Newest unreferenced checkpoints that are read."""

_RESTORE = "restore the records from a backup or an older version in the bucket"


@dataclass(frozen=True)
class Evidence:
    """Evidence that a log had a record."""

    branch: str
    sequence: int
    """Number of the record, or of one before it."""
    what: str
    """What says so."""
    otherwise: str
    """Remedy where the records are gone for good."""
    certain: bool = True
    """False if the object may be of another repository: one that was here before, or the source of a clone."""


def listed_evidence(
    logs: Mapping[str, LogRoot], table: RepositoryTable, collection: Collection | None
) -> Iterator[Evidence]:
    """Yield the evidence in objects that a verification reads anyway."""
    if collection is not None and table.collection is not None:
        key = collection_key(table.collection)
        otherwise = "if this is a clone that was made during a collection, run a full one here"
        for name, seen in collection.logs.items():
            what = f"a collection has read record {seen.sequence}: see {key}"
            yield Evidence(name, seen.sequence, what, otherwise, certain=False)
    for name, root in logs.items():
        for number in sorted({number for number, _ in root.intents}):
            key = f"{root.log.key(number)}-…"
            yield Evidence(name, number, f"{key} proposes a transaction on top of record {number}", f"delete {key}")
        row = table.branches.get(name)
        if row is not None and row.deleted and root.state is not None and not root.state.life.deleted:
            what = "the repository log says that the branch was deleted, which its own log says before that"
            yield Evidence(name, root.last + 1, what, "create the branch again, and delete it")


async def unreferenced_evidence(audit: Audit) -> list[Evidence]:
    """Return the evidence in the newest checkpoints that no object names, once all that are named were noted."""
    shelf = audit.inventory.checkpoints
    left = np.ascontiguousarray(shelf.ids[~shelf.reached][-_MOST_CHECKPOINTS:]).tobytes()

    async def load(identifier: CheckpointId) -> tuple[CheckpointId, SnapshotState] | None:
        try:
            return identifier, await load_checkpoint(audit.storage, identifier)
        except (FormatError, ObjectNotFoundError):
            return None  # nothing reads it

    loaded = [each for each in await bounded(load, split_ids(left, CheckpointId)) if each is not None]
    return [_of_checkpoint(identifier, state) for identifier, state in loaded]


def _of_checkpoint(identifier: CheckpointId, state: SnapshotState) -> Evidence:
    what = f"{checkpoint_key(identifier)}, which no object names, is a checkpoint of record {state.sequence}"
    theirs = "of a repository that was here before, or of the source of this clone"
    otherwise = f"if the checkpoint is {theirs}, run a full collection, which deletes it"
    return Evidence(state.branch, state.sequence, what, otherwise, certain=False)


async def check_evidence(
    audit: Audit, logs: Mapping[str, LogRoot], environment: Environment, evidence: Evidence
) -> None:
    """Report a log that ends before a record that there is evidence of."""
    root = logs.get(evidence.branch)
    log = BranchLog(audit.storage, audit.repository, evidence.branch, environment) if root is None else root.log
    next_one = 0 if root is None else root.last + 1
    if evidence.sequence < next_one or await log.exists(next_one):  # written since the records were listed
        return
    key = log.key(next_one)
    if evidence.certain:
        problem = f"the record does not exist, though {evidence.what}: it and all later ones are lost"
        audit.collector.error(key, problem, f"{_RESTORE}; if there is none, {evidence.otherwise}")
    else:
        problem = f"the record does not exist, though {evidence.what}: it and later ones may be lost"
        audit.collector.warning(key, problem, f"{_RESTORE}; {evidence.otherwise}")
