"""Rules about snapshots that are on no branch: what `flush` has written is what its transaction meant, and is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tests.simulation.checker.content import differences
from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.meant import Replay
from tests.simulation.checker.model import ModelError
from tests.simulation.checker.noted import wrong_metadata
from tests.simulation.checker.states import Snapshot
from tests.simulation.checker.violations import DecodingError, Violation
from tests.simulation.observations import Committed, Observations, Transaction

__all__ = ["find_detached", "wrong_flushes"]


def _flushed(notes: Observations) -> Iterator[tuple[Transaction, bytes]]:
    """Iterate over what was acknowledged as a snapshot on no branch."""
    for transaction in notes.transactions.values():
        outcome = transaction.outcome
        if transaction.flushes and isinstance(outcome, Committed):
            yield transaction, id_bytes(outcome.snapshot)


def find_detached(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Read the snapshots that are on no branch into the logs; an acknowledged one that was never written is wrong."""
    if any(transaction.flushes for transaction in notes.transactions.values()):
        logs.detached.update((found.id, found) for found in _checkpoints(logs))
    for transaction, identifier in _flushed(notes):
        logs.flushed.add(identifier)
        if identifier not in logs.detached:
            what = f"it was acknowledged as {id_text(identifier)}, and nothing is there that could be read"
            yield Violation("commits", what, transaction.label)


def _checkpoints(logs: Logs) -> Iterator[Snapshot]:
    """Iterate over the checkpoints that are stored under the ids of their snapshots."""
    for key in logs.reader.objects:
        kind, _, name = key.partition("/")
        with suppress(DecodingError):  # which is told where each checkpoint is checked
            if kind == "snapshots" and (found := logs.reader.checkpoint(id_bytes(name))).id == id_bytes(name):
                yield found


def wrong_flushes(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Compare each of them with its base and with what its transaction meant, whatever that was told."""
    for identifier, found in logs.detached.items():
        transaction = notes.transactions.get(found.message)
        if transaction is None or not transaction.flushes:
            yield Violation("commits", f"nobody meant to flush {found.message!r}", id_text(identifier))
        else:
            yield from (Violation("content", what, transaction.label) for what in _problems(logs, transaction, found))


def _problems(logs: Logs, transaction: Transaction, found: Snapshot) -> Iterator[str]:
    yield from wrong_metadata(transaction, found.metadata)
    replay = Replay(logs, transaction)
    try:
        replay.to(len(transaction.operations))
    except ModelError as error:
        yield f"it cannot have done what it noted: {error}"
        return
    if found.parent != replay.base.id:
        yield f"its snapshot does not follow its base {id_text(replay.base.id)}"
    if not replay.guessed:
        created = {node.id for node in found.nodes.values() if node.id not in replay.base.keys}
        yield from (f"after it {each}" for each in differences(replay.view.state, found, created))
