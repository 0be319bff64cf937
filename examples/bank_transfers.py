"""The bank and four ways to move its money.

Money is kept in two forms.  ``accounts`` has one chunk for each account, with its balance: whoever moves money
overwrites the chunks of both accounts.  ``ledger`` has one row for each teller, and the balance of an account is the
sum of its column: whoever moves money writes into a row of their own, where nobody else ever writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import zarr

import arraystore
from arraystore import ConflictDetector, ConflictError, RebaseFailedError

ACCOUNTS = 50
OPENING = 100
LARGEST = 60
"""Most money that one transfer moves."""


def open_bank(repository: arraystore.Repository, tellers: int) -> None:
    """Make the arrays, and pay in the same amount for everybody."""
    with repository.transaction("main", message="open the bank") as store:
        make_array(store, "accounts", (ACCOUNTS,))[:] = OPENING
        make_array(store, "ledger", (tellers + 1, ACCOUNTS))[0] = OPENING
        make_array(store, "audits", (1000,))


def make_array(store: arraystore.ArrayStore, name: str, shape: tuple[int, ...]) -> zarr.Array:
    """An array of whole numbers with each of them in a chunk of its own."""
    return zarr.create_array(
        store, name=name, shape=shape, chunks=(1,) * len(shape), dtype="int64", compressors=None, fill_value=0
    )


# What a transfer does within a session.


def overwrite_balances(session: arraystore.Session, chance: random.Random) -> None:
    """Read both balances, check that there is money, and write both chunks."""
    accounts = zarr.open_array(session.store, path="accounts", mode="r+")
    payer, payee = chance.sample(range(ACCOUNTS), 2)
    while (balance := int(accounts[payer])) == 0:
        payer = chance.choice([number for number in range(ACCOUNTS) if number != payee])
    amount = chance.randint(1, min(balance, LARGEST))
    accounts[payer] = balance - amount
    accounts[payee] = int(accounts[payee]) + amount


def post_to_ledger(session: arraystore.Session, chance: random.Random, teller: int) -> None:
    """Read the balance of the payer only, check that there is money, and write into one's own row.

    Two tellers who pay out from the same account write different chunks.  Only what they have read tells that they
    are in each other's way: without a serializable session both succeed, and the account is overdrawn.
    """
    ledger = zarr.open_array(session.store, path="ledger", mode="r+")
    payer, payee = chance.sample(range(ACCOUNTS), 2)
    while (balance := int(np.sum(ledger[:, payer]))) == 0:
        payer = chance.choice([number for number in range(ACCOUNTS) if number != payee])
    amount = chance.randint(1, min(balance, LARGEST))
    ledger[teller + 1, payer] = int(ledger[teller + 1, payer]) - amount
    ledger[teller + 1, payee] = int(ledger[teller + 1, payee]) + amount


# The ways to commit it.  Each returns whether the money has moved, and how often it was told to begin anew.


def unsafe(repository: arraystore.Repository, chance: random.Random, teller: int) -> tuple[bool, int]:
    """Commit, and give up if anybody else has committed meanwhile: the customer is sent home."""
    session = repository.writable_session("main")
    overwrite_balances(session, chance)
    try:
        session.commit(f"teller {teller} moves money")
    except ConflictError:
        return False, 1
    return True, 0


def retry(repository: arraystore.Repository, chance: random.Random, teller: int) -> tuple[bool, int]:
    """Do the whole transfer again, whatever it was that others have committed."""
    refused = 0
    while True:
        session = repository.writable_session("main")
        overwrite_balances(session, chance)
        try:
            session.commit(f"teller {teller} moves money")
        except ConflictError:
            refused += 1
            continue
        return True, refused


def rebase(repository: arraystore.Repository, chance: random.Random, teller: int) -> tuple[bool, int]:
    """Rebase onto what others have committed; do the transfer again only if they touched the same account."""
    refused = 0
    while True:
        session = repository.writable_session("main")
        overwrite_balances(session, chance)
        try:
            session.commit(f"teller {teller} moves money", rebase_with=ConflictDetector())
        except RebaseFailedError:
            refused += 1  # the balances that were read are out of date
            continue
        return True, refused


def serializable(repository: arraystore.Repository, chance: random.Random, teller: int) -> tuple[bool, int]:
    """Do it again also if others have changed what was only read: the balance of the payer."""
    refused = 0
    while True:
        session = repository.writable_session("main", isolation="serializable")
        post_to_ledger(session, chance, teller)
        try:
            session.commit(f"teller {teller} moves money", rebase_with=ConflictDetector())
        except RebaseFailedError:
            refused += 1
            continue
        return True, refused


def audit(repository: arraystore.Repository, number: int) -> bool:
    """Count all money and commit the sum, unless money moves meanwhile: then the commit is refused."""
    session = repository.writable_session("main", isolation="serializable")
    total = int(np.sum(zarr.open_array(session.store, path="ledger", mode="r")[:]))
    if total != ACCOUNTS * OPENING:
        raise AssertionError(f"the ledger holds {total}, not {ACCOUNTS * OPENING}, in snapshot {session.snapshot_id}")
    zarr.open_array(session.store, path="audits", mode="r+")[number] = total
    try:
        session.commit(f"audit {number}: {total}", rebase_with=ConflictDetector())
    except RebaseFailedError:
        return False
    return True


@dataclass(frozen=True)
class Way:
    """A way to move money, with what becomes of the balances."""

    name: str
    transfer: Callable[[arraystore.Repository, random.Random, int], tuple[bool, int]]
    uses_ledger: bool = False

    def balances(self, store: arraystore.ArrayStore) -> np.ndarray:
        """All balances."""
        if self.uses_ledger:
            return np.sum(zarr.open_array(store, path="ledger", mode="r")[:], axis=0)
        return np.asarray(zarr.open_array(store, path="accounts", mode="r")[:])


WAYS = (
    Way("unsafe", unsafe),
    Way("retry", retry),
    Way("rebase", rebase),
    Way("serializable", serializable, uses_ledger=True),
)
