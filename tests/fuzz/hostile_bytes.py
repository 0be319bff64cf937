"""A search with hostile bytes: one object is damaged, and everything is done with the repository.

    python -m tests.fuzz.hostile_bytes --mutations 2000 --seed 1

Every object kind × flip, truncate, extend, zero, swap, copy, delete.  Each time a process that knows nothing opens what
is there, reads every branch and tag, lists, verifies, counts, commits on top, collects garbage, and repairs.  What is
read is what was committed, or an error of arraystore's own; nobody makes worse what could be read.

What may differ: hints, collections and intents may be damaged at will, and nothing is to be noticed.  The newest record
of a log that is *deleted* cannot be told from one that was never written, so the branch may read as the snapshot before
it, and the repository log as it was before its newest entry.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np
import zarr

from arraystore import ArrayStoreError, Repository
from tests.copying.support import objects as objects_on
from tests.fuzz.hostile_worlds import ARRAYS, World, kind_of, opened, world

__all__ = ["DAMAGES", "Damage", "Finding", "Report", "Search", "damages", "search"]

WORLDS = ("live", "trimmed")
DAMAGES = ("flip", "truncate", "extend", "zero", "swap", "copy", "delete")
HARMLESS = ("hint", "collection", "intent")
"""Kinds without which nothing is lost and nothing reads otherwise."""

_MEMORY_EACH = 40
_STEPS = 4
"""What is done with each damaged repository besides reading it, drawn at random."""

_MOST_MEMORY = 1.5
_ERRORS = 4 << 20
"""Bytes besides: zarr reads all chunks of an array at once, so that of 200 tiny ones whose manifest is refused each has
an error and a task, 13 KB with what is in their tracebacks."""

Slices = tuple[Any, ...]


@dataclass(frozen=True)
class Damage:
    """What was done to which objects of which world.

    Parameters
    ----------
    world, listing
        Name of the world, and whether its storage lists rather than probes.
    what
        One of `DAMAGES`.
    keys
        The objects: two of a swap or a copy.
    changed
        What these are now; None for nothing.
    """

    world: str
    listing: bool
    what: str
    keys: tuple[str, ...]
    changed: dict[str, bytes | None]

    def __str__(self) -> str:
        return f"{self.what} {' and '.join(self.keys)} of the {self.world} world{', listing' if self.listing else ''}"

    def objects(self) -> dict[str, bytes]:
        """Return everything in the damaged storage."""
        merged: dict[str, bytes | None] = {**world(self.world).objects, **self.changed}
        return {key: data for key, data in merged.items() if data is not None}


@dataclass(frozen=True)
class Finding:
    """A promise that was broken."""

    damage: Damage
    what: str

    def __str__(self) -> str:
        return f"{self.damage}: {self.what}"


@dataclass
class Report:
    """What a search came to."""

    findings: list[Finding] = field(default_factory=list[Finding])
    counts: Counter[str] = field(default_factory=Counter[str])
    most_memory: float = 0.0
    """Peak of memory, as a multiple of what reading the whole undamaged repository takes."""


# -- damages --------------------------------------------------------------------------------------------------------


def damages(seed: int, count: int, names: tuple[str, ...] = WORLDS) -> Iterator[Damage]:
    """Yield damages: every kind of object in turn, each by everything that may happen to it."""
    chance = Random(seed)
    places = [(name, kind) for name in names for kind in world(name).by_kind()]
    pairs = [(name, kind, what) for name, kind in places for what in DAMAGES]
    for number in range(count):
        if number % len(pairs) == 0:
            chance.shuffle(pairs)
        yield _damage(chance, *pairs[number % len(pairs)])


def _damage(chance: Random, name: str, kind: str, what: str) -> Damage:
    made = world(name)
    keys = made.by_kind()[kind]
    key = chance.choice(keys)
    data = made.objects[key]
    listing = chance.random() < 0.5
    if what not in ("swap", "copy"):
        changed = _changed(chance, what, data)
        return Damage(name, listing, what, (key,), {key: changed})
    others = keys if len(keys) > 1 and chance.random() < 0.8 else sorted(made.objects)
    other = chance.choice([each for each in others if each != key])
    both = {key: made.objects[other]} | ({other: data} if what == "swap" else {})
    return Damage(name, listing, what, (key, other), dict(both))


def _changed(chance: Random, what: str, data: bytes) -> bytes | None:
    at = chance.randrange(len(data))
    if what == "flip":
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if what == "truncate":
        return data[: chance.choice([0, at, len(data) - 1])]
    if what == "extend":
        return data + chance.choice([b"\0", data, chance.randbytes(1 + at)])
    if what == "zero":
        return _zeroed(chance, data, at)
    return None


def _zeroed(chance: Random, data: bytes, at: int) -> bytes:
    """Return an object with a range of zeros that were not all zeros."""
    end = min(len(data), at + chance.choice([1, 16, 512, len(data)]))
    changed = data[:at] + bytes(end - at) + data[end:]
    return changed if changed != data else bytes(len(data))


# -- one damage -----------------------------------------------------------------------------------------------------


@dataclass
class Search:
    """What is done with one damaged repository, and what comes of it."""

    damage: Damage
    report: Report
    chance: Random
    tidy: bool = False
    """Whether what zarr and asyncio leave behind of a refused read, in cycles, is collected at once."""

    @property
    def world(self) -> World:
        """The world as it should be."""
        return world(self.damage.world)

    @property
    def harmless(self) -> bool:
        """Whether nothing at all may be noticed."""
        kinds = {kind_of(key) for key in self.damage.changed}
        return kinds <= set(HARMLESS)

    def run(self) -> None:
        """Do everything."""
        objects = self.damage.objects()
        before = self.read(objects, "")
        if before is None:
            return
        steps = list(self.steps(objects))
        for name, step in self.chance.sample(steps, min(_STEPS, len(steps))):
            left = self.attempt(name, step)
            if left is not None:
                self.compare(before, left, name)

    def attempt(self, name: str, step: Callable[[], Any]) -> Any:
        """Do something; an error of arraystore's own is an answer, any other is not."""
        try:
            return step()
        except ArrayStoreError as error:
            self.report.counts[f"refused: {name}"] += 1
            if self.harmless:
                self.find(f"{name}: {type(error).__name__}: {error}, though nothing needs what is damaged")
        except Exception as error:  # noqa: BLE001 - any other error is what is looked for
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.find(f"{name}: {type(error).__name__}: {str(error)[:200]} at {where.filename}:{where.lineno}")
        return None

    def find(self, what: str) -> None:
        self.report.findings.append(Finding(self.damage, what))

    def open(self, objects: dict[str, bytes]) -> Repository:
        return opened(objects, listing=self.damage.listing)

    # -- reading

    def read(self, objects: dict[str, bytes], after: str) -> dict[tuple[str, str], str | None] | None:
        """Read every branch and tag; returns the snapshot at which each was, and None for one that cannot be read."""
        repository = self.attempt("open" + after, lambda: self.open(objects))
        if repository is None:
            return None
        found: dict[tuple[str, str], str | None] = {}
        for reference, history in self.world.histories.items():
            read = partial(self.reference, repository, reference, history, again=bool(after))
            found[reference] = self.attempt("read" + after, read)
        return found

    def reference(
        self, repository: Repository, reference: tuple[str, str], history: list[str], *, again: bool = False
    ) -> str:
        """Read a branch or tag as a whole and in slices, and compare."""
        session = repository.readonly_session(**{reference[0]: reference[1]})
        snapshot = session.snapshot_id
        if snapshot not in self.allowed(reference, history):
            self.find(f"{reference} is at {snapshot}, not {history[0]}")
            return snapshot
        group = zarr.open_group(session.store, mode="r")
        expected = self.world.snapshots[snapshot]
        if {path for path, item in group.members(max_depth=None) if isinstance(item, zarr.Array)} != set(expected):
            self.find(f"{reference} lists {sorted(path for path, _ in group.members(max_depth=None))}")
        for name in ARRAYS:
            self.array(group[name], expected[name], f"{name} of {reference}", 0 if again else 2)
        return snapshot

    def array(self, array: Any, expected: Any, what: str, slices: int = 2) -> None:
        """Compare an array, as a whole and in slices."""
        try:
            same = np.array_equal(array[...], expected)
        except ArrayStoreError:
            self.report.counts["refused: array"] += 1
            same = True
        self.collect()
        for _ in range(slices):
            place = tuple(
                slice(*sorted(self.chance.sample(range(n + 1), 2))) if n else slice(0) for n in expected.shape
            )
            try:
                same &= np.array_equal(array[place], expected[place])
            except ArrayStoreError:
                self.collect()
        if not same:
            self.find(f"WRONG VALUES in {what}")

    def collect(self) -> None:
        """Free what is in cycles: what is held is measured, and not how often Python looks for garbage."""
        if self.tidy:
            gc.collect()

    def allowed(self, reference: tuple[str, str], history: list[str]) -> list[str]:
        """Return the snapshots at which a branch or tag may be."""
        lost = self.damage.what == "delete" and self.damage.keys[0] in newest_records(self.damage.world)
        return history[:2] if lost and reference[0] == "branch" else history[:1]

    # -- everything else

    def steps(self, objects: dict[str, bytes]) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield what else is done; those that change something return what is there afterwards."""

        def changing(work: Callable[[Repository], Any]) -> Callable[[], dict[str, bytes]]:
            def step() -> dict[str, bytes]:
                repository = self.open(objects)
                work(repository)
                repository.wait_for_maintenance()
                storage: Any = repository.storage
                return objects_on(storage)

            return step

        def looking(work: Callable[[Repository], Any]) -> Callable[[], None]:
            def step() -> None:
                work(self.open(objects))

            return step

        now = datetime.now(UTC)
        yield "ancestry", looking(self.ancestry)
        yield "diff", looking(self.differences)
        yield "statistics", looking(lambda repository: repository.statistics())
        yield "operations", looking(lambda repository: list(repository.ops_log()))
        yield "verify", looking(lambda repository: self.verified(repository, "metadata"))
        yield "verify chunks", looking(lambda repository: self.verified(repository, "chunks"))
        yield "dry collection", looking(lambda repository: repository.garbage_collect(now, dry_run=True))
        yield (
            "collection",
            changing(
                lambda repository: repository.garbage_collect(
                    now, full=True, record_grace=timedelta(0), nobody_writes=True
                )
            ),
        )
        yield "repair", changing(lambda repository: repository.repair())
        yield "expiry", changing(lambda repository: repository.expire_snapshots(datetime(1970, 1, 2, tzinfo=UTC)))
        yield "commit", looking(self.commit)

    def ancestry(self, repository: Repository) -> None:
        for reference, history in self.world.histories.items():
            try:
                found = [info.id for info in repository.ancestry(**{reference[0]: reference[1]})]
            except ArrayStoreError:
                if self.harmless:
                    raise
                continue
            if found != history and not (found == history[1:] and found[0] in self.allowed(reference, history)):
                self.find(
                    f"the history of {reference} has {len(found)} snapshots, not the {len(history)} that were made"
                )

    def differences(self, repository: Repository) -> None:
        found = repository.diff(from_tag="early", to_tag="late")
        if str(found) != _undamaged_difference(self.damage.world):
            self.find("WRONG diff")

    def verified(self, repository: Repository, level: Any) -> None:
        report = repository.verify(level=level)
        self.report.counts[f"verify {level}: {'findings' if report.findings else 'nothing found'}"] += 1

    def commit(self, repository: Repository) -> None:
        """Commit on top, and read it, and everything else, in a process that knows nothing."""
        session = repository.writable_session("main")
        base = session.snapshot_id
        zarr.open_array(session.store, path="tiny", mode="r+")[3] = 4321
        made = session.commit("on top")
        repository.wait_for_maintenance()
        storage: Any = repository.storage
        again = self.open(objects_on(storage))
        session = again.readonly_session("main")
        if session.snapshot_id != made:
            self.find(f"{made} was acknowledged, and main is at {session.snapshot_id}")
        group: Any = zarr.open_group(session.store, mode="r")
        expected = {path: values.copy() for path, values in self.world.snapshots[base].items()}
        expected["tiny"][3] = 4321
        for name in ARRAYS:
            self.array(group[name], expected[name], f"{name} after a commit on top")

    def compare(self, before: dict[tuple[str, str], str | None], objects: dict[str, bytes], after: str) -> None:
        """Check that what could be read can be read still."""
        found = self.read(objects, f" after {after}") or {}
        for reference, snapshot in before.items():
            if snapshot is not None and found.get(reference) is None:
                self.find(f"{reference} could be read, and cannot after {after}")


@cache
def newest_records(name: str) -> set[str]:
    """Return the keys of the newest record of each log."""
    newest: dict[str, str] = {}
    for key in world(name).objects:
        if kind_of(key) in ("record", "repository record"):
            newest[key.rpartition("/")[0]] = max(newest.get(key.rpartition("/")[0], ""), key)
    return set(newest.values())


@cache
def _undamaged_difference(name: str) -> str:
    return str(opened(world(name).objects, listing=False).diff(from_tag="early", to_tag="late"))


# -- memory ---------------------------------------------------------------------------------------------------------


def _peak(damage: Damage) -> int:
    """Return the peak of memory while everything is read."""
    report = Report()
    gc.freeze()  # so that a collection looks at nothing older
    tracemalloc.start()
    try:
        Search(damage, report, Random(0), tidy=True).read(damage.objects(), "")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


@cache
def _usual_peak(name: str, listing: bool) -> int:
    damage = Damage(name, listing, "none", (), {})
    return max(_peak(damage) for _ in range(2))


# -- the whole ------------------------------------------------------------------------------------------------------


def search(seed: int, count: int, told: Callable[[str], None] = lambda what: None) -> Report:
    """Try that many damages."""
    report = Report()
    for number, damage in enumerate(damages(seed, count)):
        known = len(report.findings)
        Search(damage, report, Random(number)).run()
        report.counts[f"{damage.what} {kind_of(damage.keys[0])}"] += 1
        if number % _MEMORY_EACH == 0:
            _measure(damage, report)
        for finding in report.findings[known:]:
            told(f"{number}: {finding}")
        if number % 100 == 99:
            told(f"{number + 1} mutations")
    return report


def _measure(damage: Damage, report: Report) -> None:
    peak, usual = _peak(damage), _usual_peak(damage.world, damage.listing)
    report.counts["measured"] += 1
    report.most_memory = max(report.most_memory, peak / usual)
    if peak > _MOST_MEMORY * usual + _ERRORS:
        report.findings.append(
            Finding(damage, f"{peak >> 10} KiB of memory, where reading everything takes {usual >> 10}")
        )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Damage objects, and do everything with the repository.")
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    report = search(options.seed, options.mutations, _tell)
    for what, times in sorted(report.counts.items()):
        _tell(f"{what}: {times}")
    seconds = time.monotonic() - began
    _tell(f"most memory: {report.most_memory:.2f} times that of reading everything")
    _tell(f"{options.mutations} mutations, seed {options.seed}, {len(report.findings)} findings, {seconds:.0f} s")
    sys.exit(bool(report.findings))


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
