"""Ten tellers move money between fifty accounts at once, and none is lost.

Run it with ``python examples/bank_accounts.py``; ``--help`` tells what can be varied.  The tellers are processes that
share nothing but the storage (in memory: threads of one repository).  The money moves in four ways, which
bank_transfers.py explains:

unsafe        commit, and give up where anybody else has committed meanwhile (`ConflictError`)
retry         do the whole transfer again then
rebase        rebase onto what others have committed; only who touched the same account begins anew
serializable  write where nobody else writes, and rely on what was only read; meanwhile an audit counts all money

After each run the history and the balances are checked: one commit for each transfer that succeeded, all the money
still there, and no account overdrawn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import zarr
from bank_places import StorageMaker, local_directory, memory, s3_server
from bank_team import Shift, Team, processes, threads
from bank_transfers import ACCOUNTS, OPENING, WAYS, Way, audit, make_array, open_bank
from rich.table import Table

import arraystore
from arraystore import ConflictDetector, RebaseFailedError
from arraystore.cli.console import make_console
from arraystore.storage import Storage

PLACES: dict[str, Callable[[], AbstractContextManager[StorageMaker]]] = {
    "memory": memory,
    "local": local_directory,
    "s3": s3_server,
}
AUDIT_PAUSE = 0.2
"""Seconds between two audits while money moves."""


@dataclass(frozen=True)
class Outcome:
    """What came of one way on one storage."""

    place: str
    way: Way
    moved: int
    refused: int
    seconds: float
    records: int
    requests: int
    audits: int
    audits_refused: int

    def row(self) -> tuple[str, ...]:
        """The outcome as a row of the table."""
        audits = f"{self.audits} of {self.audits + self.audits_refused}" if self.way.uses_ledger else ""
        return (
            self.place,
            self.way.name,
            str(self.moved),
            str(self.refused),
            str(self.records),
            f"{self.seconds:.2f}",
            f"{self.moved / self.seconds:.0f}",
            f"{self.requests / self.moved:.1f}",
            audits,
        )


COLUMNS = (
    "storage",
    "way",
    "transfers",
    "refused",
    "records tried",
    "seconds",
    "commits/s",
    "requests/commit",
    "audits",
)


def main() -> None:
    """Show what goes wrong without isolation, run everything, print the table."""
    arguments = parse()
    console = make_console()
    console.print(write_skew(), soft_wrap=True)
    table = Table(
        *COLUMNS, title=f"{arguments.tellers} tellers, {arguments.transfers} transfers each", title_style="bold"
    )
    with processes(arguments.tellers) as apart, threads(arguments.tellers) as together:
        for place in arguments.storage or PLACES:
            team = together if place == "memory" else apart
            with PLACES[place]() as make_storage:
                for way in WAYS:
                    table.add_row(*run(place, make_storage(), team, way, arguments.transfers).row())
            table.add_section()
    console.print(table)
    console.print(
        "[dim]refused: how often a teller was told to begin anew, or, the unsafe way, to give up.  records tried: "
        "conditional PUTs of records,\nof which each lost race costs one; one record can hold several commits of one "
        "process.  Checked each time: one commit in history for\neach transfer, no money appeared or vanished, no "
        "balance is negative."
    )


def parse() -> argparse.Namespace:
    """What is to be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tellers", type=int, default=10)
    parser.add_argument("--transfers", type=int, default=5, help="that each teller makes, in each way (%(default)s)")
    parser.add_argument(
        "--storage", choices=list(PLACES), action="append", help="where to keep the books (all three); can be repeated"
    )
    return parser.parse_args()


def write_skew() -> str:
    """Pay out all the money of one account twice, and return what each kind of session says to that."""
    told = [f"Two tellers pay out the same {OPENING}, each with an entry in a row of their own:\n"]
    for isolation in ("snapshot", "serializable"):
        repository = arraystore.Repository.create(arraystore.in_memory_storage())
        with repository.transaction("main", message="open the bank") as store:
            make_array(store, "ledger", (3, 1))[0] = OPENING
        first, second = (repository.writable_session("main", isolation=isolation) for _ in range(2))
        for row, session in enumerate((first, second), start=1):
            ledger = zarr.open_array(session.store, path="ledger", mode="r+")
            ledger[row, 0] = -int(np.sum(ledger[:, 0]))
        first.commit("pay out")
        try:
            second.commit("pay out", rebase_with=ConflictDetector())
        except RebaseFailedError as error:
            told.append(f"[bold]{isolation}[/bold]: the second is refused.  {error}\n")
        else:
            ledger = zarr.open_array(repository.readonly_session("main").store, path="ledger", mode="r")
            told.append(f"[bold]{isolation}[/bold]: both commits succeed, and the account holds {np.sum(ledger[:])}.\n")
    return "\n".join(told)


def run(place: str, storage: Storage, team: Team, way: Way, transfers: int) -> Outcome:
    """Let the team move money one way, and check what is left."""
    repository = arraystore.Repository.create(storage)
    open_bank(repository, team.size)
    before = sum(1 for _ in repository.ancestry(branch="main"))
    working = team.work(storage, way, transfers)
    audits, audits_refused = audit_meanwhile(repository, working) if way.uses_ledger else (0, 0)
    shifts = [each.result() for each in working]
    moved = sum(shift.moved for shift in shifts)
    check(arraystore.Repository.open(storage), way, before + moved + audits)
    requests = team.requests(shifts)
    return Outcome(
        place,
        way,
        moved,
        sum(shift.refused for shift in shifts),
        max(shift.ended for shift in shifts) - min(shift.began for shift in shifts),
        sum(operation == "put_if_absent" and "/branch/" in key for operation, key in requests),
        sum(operation != "sync" for operation, _ in requests),
        audits,
        audits_refused,
    )


def audit_meanwhile(repository: arraystore.Repository, working: list[Future[Shift]]) -> tuple[int, int]:
    """Audit again and again while money moves, and once afterwards; returns how many audits succeeded, and failed."""
    results: list[bool] = []
    while not all(each.done() for each in working):
        results.append(audit(repository, len(results)))
        time.sleep(AUDIT_PAUSE)
    if not audit(repository, len(results)):
        raise AssertionError("an audit was refused although no money moves any more")
    return sum(results) + 1, len(results) - sum(results)


def check(repository: arraystore.Repository, way: Way, commits: int) -> None:
    """Compare what is in the storage, read anew, with what was acknowledged."""
    history = [snapshot.id for snapshot in repository.ancestry(branch="main")]
    if len(history) != commits or len(set(history)) != commits:
        raise AssertionError(f"{way.name}: {commits} commits were acknowledged, and history has {len(history)}")
    balances = way.balances(repository.readonly_session("main").store)
    if int(balances.sum()) != ACCOUNTS * OPENING:
        raise AssertionError(f"{way.name}: there were {ACCOUNTS * OPENING}, and {balances.sum()} are left")
    if int(balances.min()) < 0:
        raise AssertionError(f"{way.name}: account {int(balances.argmin())} is overdrawn: {balances.min()}")


if __name__ == "__main__":
    main()
