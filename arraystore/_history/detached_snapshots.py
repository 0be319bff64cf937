"""Snapshots on no branch: a checkpoint under the snapshot's own id."""

from __future__ import annotations

from dataclasses import replace

from arraystore._commit.fencing import admission_error
from arraystore._commit.prepare import upload
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_request import check_recorded
from arraystore._context.context import Context
from arraystore._format.envelope import bind_object
from arraystore._format.ids import CheckpointId, SnapshotId, id_to_text
from arraystore._format.snapshot import checkpoint_key
from arraystore._format.transaction import ChunkChange, TransactionLog
from arraystore._history.pinning import check_kept
from arraystore._log.loading import Tip, load_checkpoint
from arraystore._log.state import CheckpointRef, Resolved, SnapshotState
from arraystore._log.status import check_allowed
from arraystore._maintenance.checkpoints import encode_state
from arraystore.errors import (
    FormatError,
    ObjectNotFoundError,
    SessionExpiredError,
    SnapshotExpiredError,
)


async def read_detached(context: Context, snapshot: SnapshotId) -> SnapshotState | None:
    """Read a snapshot on no branch; None if there is no such one."""
    try:
        state = await load_checkpoint(context.storage, CheckpointId(snapshot))
    except (ObjectNotFoundError, FormatError):
        return None
    return replace(state, recorded=False) if state.snapshot == snapshot else None


async def write_detached(context: Context, base: Tip, prepared: Prepared) -> Tip:
    """Write a transaction as a snapshot on no branch, under a new id.

    A request of an earlier attempt may arrive late, so no attempt writes what another one wrote or deletes.  What is
    refused is left to the next collection: nobody knows its id.

    Raises `SessionStateError` if the base is not a snapshot of a branch, `SessionExpiredError` if objects of the
    transaction may have been collected, and `ReadOnlyError` if the repository is read-only.
    """
    check_recorded(base.state)
    context.environment.after(context.repository_log.cached_table.watermark)
    prepared = replace(prepared, id=SnapshotId(context.environment.new_id()))
    error = admission_error(replace(prepared, oldest=None), base.state)
    if error is not None:
        raise error
    objects: list[tuple[str, bytes]] = []
    chunks = tuple([_with_object(prepared, each, objects) for each in prepared.log.chunks])
    log = TransactionLog(prepared.log.nodes, chunks)
    await upload(context.storage, objects)
    transaction = prepared.transaction(base.state.snapshot, base.state.branch, base.sequence)
    made = base.state.committed(base.sequence, [Resolved(transaction, log, prepared.note)])
    identifier = CheckpointId(prepared.id)
    state = replace(made, checkpoint=CheckpointRef(base.sequence, identifier), recorded=False)
    key = checkpoint_key(identifier)
    await upload(context.storage, [(key, await encode_state(context.log(state.branch), key, state))])
    await _check_admitted(context, base.state, prepared)
    return Tip(state, base.bodies)


async def _check_admitted(context: Context, base: SnapshotState, prepared: Prepared) -> None:
    """Check that a snapshot on no branch may stay: what it references is not deleted, nor the repository read-only.

    A collection with a higher watermark that starts after this retains the snapshot, or deletes both.
    """
    oldest = prepared.id if prepared.oldest is None else min(prepared.id, prepared.oldest)
    table = await context.repository_log.table()
    check_allowed(table, "flush")
    if table.watermark > oldest:
        raise SessionExpiredError(
            f"garbage was collected after this session wrote {id_to_text(oldest)}: it may be deleted already. Nothing "
            "was written. Open a new session and write the changes again."
        )
    try:
        await check_kept(context, base)
    except SnapshotExpiredError as error:
        raise SessionExpiredError(
            f"branch {base.branch!r} has lost snapshot {id_to_text(base.snapshot)}, on which this session is based: "
            "it has expired, or the branch was reset or deleted, so what the session takes from it may be deleted "
            "already. Nothing was written. Open a new session and write the changes again."
        ) from error


def _with_object(prepared: Prepared, change: ChunkChange, objects: list[tuple[str, bytes]]) -> ChunkChange:
    """Write the manifest of a change as an object of its own, where it would be attached to a record."""
    layer = change.layer
    if layer.attachment is None:
        return change
    objects.append((layer.key, bind_object(layer.key, prepared.attachments[layer.attachment.index])))
    return replace(change, layer=replace(layer, attachment=None))
