"""Checkpoints that a clone takes: those that were there before its cut, and later ones of records within it.

A checkpoint of a record beyond the cut would tell, where nothing names it, of a record that the clone has lost.
"""

from __future__ import annotations

from arraystore._format.ids import CheckpointId, id_from_text
from arraystore._log.loading import load_checkpoint
from arraystore._runtime.concurrency import for_each
from arraystore.copying.consistent_cut import LogEnds
from arraystore.errors import FormatError, InvalidInputError, ObjectNotFoundError
from arraystore.storage.protocol import Storage

__all__ = ["CHECKPOINTS", "checkpoints_within", "list_checkpoints"]

CHECKPOINTS = "snapshots/"
_AT_A_TIME = 8


async def list_checkpoints(storage: Storage) -> set[str]:
    """Return the keys of all checkpoints."""
    return {info.key async for page in storage.list(CHECKPOINTS) for info in page}


async def checkpoints_within(storage: Storage, before: set[str], ends: LogEnds) -> set[str]:
    """Return the keys of the checkpoints that were there `before` the ends of logs were fixed, or are of their records.

    What cannot be read is among them: copying it tells why.
    """
    within = set(before)

    async def look(key: str) -> None:
        try:
            state = await load_checkpoint(storage, CheckpointId(id_from_text(key.removeprefix(CHECKPOINTS))))
        except ObjectNotFoundError:
            return
        except (FormatError, InvalidInputError):
            within.add(key)
            return
        if state.sequence <= ends.branches.get(state.branch, (0, -1))[1]:
            within.add(key)

    await for_each(sorted(await list_checkpoints(storage) - before), look, _AT_A_TIME)
    return within
