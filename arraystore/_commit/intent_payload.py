"""Prepared transactions as other processes read them."""

from __future__ import annotations

from arraystore._changes.read_set import ReadSet
from arraystore._commit.prepared import Prepared
from arraystore._commit.rebase_step import PendingTransaction
from arraystore._format.intent import Proposal


def proposal_of(transaction: PendingTransaction) -> Proposal:
    """Return what others have to know of a transaction whose change log is not an object of its own."""
    prepared, reads = transaction.prepared, transaction.reads
    place = prepared.log_place
    assert not isinstance(place, bytes)
    return Proposal(
        prepared.id,
        prepared.note,
        prepared.log,
        place if isinstance(place, int) else None,
        prepared.attachments,
        prepared.time,
        prepared.isolation,
        prepared.marks,
        prepared.cuts,
        None if reads is None else reads.encode(),
        tuple(sorted(transaction.guard)),
        prepared.oldest,
        prepared.packs,
    )


def read_proposal(name: str, proposal: Proposal) -> PendingTransaction:
    """Read the transaction of a proposal; raises `FormatError`."""
    prepared = Prepared(
        proposal.id,
        proposal.note,
        proposal.log,
        proposal.log if proposal.log_place is None else proposal.log_place,
        proposal.attachments,
        proposal.time,
        proposal.isolation,
        dict(proposal.marks),
        dict(proposal.cuts),
        oldest=proposal.oldest,
        packs=proposal.packs,
    )
    reads = None if proposal.reads is None else ReadSet.decode(name, proposal.reads)
    return PendingTransaction(prepared, reads, frozenset(proposal.guard))
