"""A program that was written for Icechunk, run with Icechunk and, with one import changed, with arraystore."""

from __future__ import annotations

import importlib
import random
import statistics
import time
from typing import Any

import zarr

import arraystore
from benchmarks.places import Place, PlaceMaker
from benchmarks.results import CaseResult, Table, at_least, human
from benchmarks.setup import Setup
from benchmarks.timing import note

__all__ = ["run"]

_OURS, _OURS_FAST, _PEER = "arraystore", "arraystore, fsync=False", "icechunk"
_MODULES = {_OURS: "arraystore.compat.icechunk", _OURS_FAST: "arraystore.compat.icechunk", _PEER: "icechunk"}
"""What the program imports, by the name of the contender."""
_ACCOUNTS = 50
_WARM_UP = 5


def _storage(api: Any, place: Place, name: str) -> Any:
    """Return a storage by the functions that the program would call."""
    if place.server is None and name == _OURS_FAST:
        return arraystore.local_filesystem_storage(place.directory / "fast", fsync=False)
    if place.server is None:
        return api.local_filesystem_storage(str(place.directory / name))
    server = place.server
    return api.s3_storage(
        bucket=server.bucket,
        prefix=f"{place.prefix}/{name}",
        endpoint_url=server.endpoint_url,
        allow_http=True,
        force_path_style=True,
        region=server.region,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
    )


class _Bank:
    """Accounts, each a chunk, and a clerk who moves money between them, a commit for each transfer."""

    def __init__(self, name: str, place: Place) -> None:
        self.api: Any = importlib.import_module(_MODULES[name])
        self.repository = self.api.Repository.create(_storage(self.api, place, name))
        session = self.repository.writable_session("main")
        group = zarr.group(store=session.store, overwrite=True)
        accounts = group.create_array("accounts", shape=(_ACCOUNTS,), chunks=(1,), dtype="int64", fill_value=0)
        accounts[:] = 100
        session.commit("open the bank")

    def transfer(self, source: int, target: int, *, contended: bool) -> float:
        """Move one unit; return the seconds it took.  If contended, somebody else commits in between."""
        started, between = time.perf_counter(), 0.0
        session = self.repository.writable_session("main")
        self._move(session, source, target)
        if contended:
            paused = time.perf_counter()
            other = self.repository.writable_session("main")
            self._move(other, (source + 1) % _ACCOUNTS, (target + 1) % _ACCOUNTS)
            other.commit("somebody else's transfer")
            between = time.perf_counter() - paused
        session.commit("transfer", rebase_with=self.api.ConflictDetector())
        return time.perf_counter() - started - between

    def _move(self, session: Any, source: int, target: int) -> None:
        accounts: Any = zarr.open_group(session.store, mode="r+")["accounts"]
        accounts[source] = accounts[source] - 1
        accounts[target] = accounts[target] + 1

    def check(self, commits: int) -> None:
        """Check that nothing is lost."""
        accounts: Any = zarr.open_group(self.repository.readonly_session("main").store, mode="r")["accounts"]
        kept = sum(1 for _ in self.repository.ancestry(branch="main")) - 2
        if int(accounts[:].sum()) != 100 * _ACCOUNTS or kept != commits:
            raise AssertionError(f"{self.api.__name__}: {kept} of {commits} commits are in the history")


def _pairs(place: Place, transfers: int, *, contended: bool) -> dict[str, list[float]]:
    """Time transfers in pairs, one with each library, whose order changes with each pair."""
    names = _MODULES if place.server is None else (_OURS, _PEER)
    banks = {name: _Bank(name, place) for name in names}
    luck, times = random.Random(7), {name: list[float]() for name in banks}
    for number in range(_WARM_UP + transfers):
        source = luck.randrange(0, _ACCOUNTS, 4)
        target = (source + 2) % _ACCOUNTS
        for name in sorted(banks, reverse=bool(number % 2)):
            seconds = banks[name].transfer(source, target, contended=contended)
            if number >= _WARM_UP:
                times[name].append(seconds)
    for bank in banks.values():
        bank.check((_WARM_UP + transfers) * (2 if contended else 1))
    return times


def _row(where: str, name: str, times: dict[str, list[float]]) -> list[str]:
    ours, theirs = times[name], times[_PEER]
    ratios = [their / mine for mine, their in zip(ours, theirs, strict=True)]
    medians = [f"{human(statistics.median(each) * 1e3)} ms" for each in (ours, theirs)]
    faster = f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"
    return [where, name, *medians, f"{statistics.median(ratios):.2f}", faster]


_HEADER = ["where", "system", "its median", "Icechunk's", "Icechunk's over its, median of pairs", "faster in"]


def run(setup: Setup) -> CaseResult:
    """Time each commit of the bank program, on a local directory and on the S3 server, alone and after a lost race."""
    result = CaseResult("switching", "A program written for Icechunk, with one import changed")
    transfers = setup.scaled(100, 5)
    places = dict(setup.places)
    if setup.server is not None:
        places["S3"] = PlaceMaker("s3", setup.scratch, setup.server)
    rows: list[list[str]] = []
    for where, maker in places.items():
        for contended in (False, True):
            what = f"{where}, {'after a lost race' if contended else 'alone'}"
            note(f"switching: {what}")
            with maker.fresh() as place:
                times = _pairs(place, transfers, contended=contended)
            for name in [name for name in times if name != _PEER]:
                label = f"bank program, a transfer and its commit, {what}: {name}"
                ours, theirs = (statistics.median(times[each]) * 1e3 for each in (name, _PEER))
                result.bars.append(at_least(label, ours, theirs, 1.0, "ms"))
            rows += [_row(what, name, times) for name in times if name != _PEER]
    title = f"Transfers between {_ACCOUNTS} accounts: open a session, read and write two chunks, commit"
    result.tables.append(Table(title, _HEADER, rows))
    result.notes.append(
        "The same lines run with `import icechunk` and with `import arraystore.compat.icechunk as icechunk`, one "
        "transfer with each in turn. On local directories arraystore's commits are durable unless `fsync=False` says "
        "otherwise, Icechunk's never are."
    )
    return result
