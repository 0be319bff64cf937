"""Gathering transactions into one record, each rebased over those before it."""

from __future__ import annotations

from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_step import OnTop, PendingTransaction, rebase_over
from arraystore._format.ids import SnapshotId
from arraystore._format.record import MAX_ATTACHED, MAX_BODY, Commit, Transaction, encode_body
from arraystore._format.transaction import TransactionLog
from arraystore._log.branch_entries import append_entry
from arraystore._log.branch_log import BranchLog
from arraystore._log.footprint import Footprint
from arraystore._log.loading import Passed, Step, Tip
from arraystore._log.state import Resolved, StateBuilder
from arraystore.errors import ArrayStoreError, InvalidInputError

_ROOM = MAX_BODY - 256
"""Bytes of a record's body for its transactions and refusals."""


class Batch:
    """Transactions that share a record, which comes after that of `tip`."""

    def __init__(self, log: BranchLog, tip: Tip) -> None:
        self.log = log
        self.tip = tip
        self.sequence = tip.sequence + 1
        self.theirs = Footprint()
        self.refused: list[SnapshotId] = []
        self._builder = StateBuilder(tip.state)
        self._resolved: list[Resolved] = []
        self._attachments: list[bytes] = []
        self._body = 0

    def __len__(self) -> int:
        return len(self._resolved)

    def holds(self, identifier: SnapshotId) -> bool:
        """Tell whether a transaction is in it already."""
        return any(item.id == identifier for item, _, _ in self._resolved)

    def fits(self, transaction: PendingTransaction) -> bool:
        """Tell whether a transaction that goes with the tip goes with those gathered, too.

        If not, the next record decides: a verdict must not name a snapshot that may never come to be.
        """
        if not self._resolved:
            return True
        if transaction.prepared.amends is not None:
            return False
        return rebase_over(transaction, self.theirs, self.tip.state, self._builder.peek()) == OnTop()

    def add(self, prepared: Prepared) -> bool:
        """Add a transaction; False if the record, which has room for one of any size, has no room left for it.

        Raises `FormatError` if it does not fit the snapshot that the others make.
        """
        first = len(self._attachments)
        before = self._builder.peek()
        parent = before.snapshot if prepared.amends is None else before.parent
        if parent is None:
            raise InvalidInputError("the first snapshot of a repository cannot be amended")
        transaction = prepared.transaction(parent, self.log.branch, self.sequence, first)
        size = len(encode_body(self.sequence, Commit((transaction,)), self.log.branch))
        if self._resolved:
            attached = sum(map(len, self._attachments)) + sum(map(len, prepared.attachments))
            if attached > MAX_ATTACHED or self._body + size > _ROOM:
                return False
        located = prepared.located(self.log.branch, self.sequence, first)
        resolved = Resolved(transaction, located, prepared.note)
        try:
            self._builder.commit(self.sequence, [resolved])
        except ArrayStoreError:
            self._builder = StateBuilder(self.tip.state)  # it holds a part of what failed
            if self._resolved:
                self._builder.commit(self.sequence, self._resolved)
            raise
        self.theirs.add(self.tip.state, prepared.id, located)
        self._body += size
        self._resolved.append(resolved)
        self._attachments += prepared.attachments
        return True

    def refuse(self, identifier: SnapshotId) -> bool:
        """Say in the record that a proposal is refused; False if there is no room, and a later one has to."""
        if self._body + len(identifier) > _ROOM // 2:  # a record has to commit something, too
            return False
        self._body += len(identifier)
        self.refused.append(identifier)
        return True

    @property
    def large(self) -> bool:
        """True if a change log is outside of the body."""
        return any(not isinstance(item.log, TransactionLog) for item, _, _ in self._resolved)

    async def write(self, *, settle: bool = True) -> bytes | None:
        """Try to append the record; returns its body, None if another one took its place.

        Where that is not to be settled, None leaves open whose record is there: whoever has followed the log then asks
        `found_in`.
        """
        return await append_entry(self.log, self.tip, self._entry(), tuple(self._attachments), settle=settle)

    def found_in(self, newest: Tip) -> bytes | None:
        """Return the record's body if the log up to a newer record has it, as far as that is at hand."""
        body = newest.bodies.get(self.sequence)
        return body if body == encode_body(self.sequence, self._entry(), self.log.branch) else None

    def _entry(self) -> Commit:
        transactions: tuple[Transaction, ...] = tuple([item for item, _, _ in self._resolved])
        return Commit(transactions, tuple(self.refused))

    def step(self) -> Step:
        """Return the record as others come to see it."""
        passed = Passed(self.sequence, self._entry(), tuple(self._resolved))
        return Step(passed, self.tip.state, self._builder.build())
