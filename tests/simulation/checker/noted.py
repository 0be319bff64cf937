"""What the metadata of a commit says: what its user has set, and where the library says that it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.simulation.observations import Rebase, Transaction

_LIBRARY = "__arraystore"


def wrong_metadata(transaction: Transaction, metadata: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what is wrong with the metadata of what a transaction has committed."""
    found = dict(metadata or {})
    told = found.pop(_LIBRARY, {})
    if found != dict(transaction.metadata or {}):
        yield f"its metadata is {found}, not {transaction.metadata}"
    if transaction.transplants is not None:  # which has no base of its own
        return
    bases = {transaction.base, *(each.snapshot for each in transaction.operations if isinstance(each, Rebase))}
    if told.get("base", transaction.base) not in bases:
        yield f"it says that it was made on {told['base']}, and its session was on {sorted(bases)}"
