"""Rounds of trials: seeded, bounded by a number or by time, with what is found kept."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.objects import object_targets, part_targets
from tests.fuzz.stores import store_targets
from tests.fuzz.target import BrokenPromiseError, Target
from tests.fuzz.texts import text_targets

__all__ = ["CORPUS", "NAMES", "Report", "corpus_of", "fuzz", "targets"]

CORPUS = Path(__file__).parent / "corpus"
"""Inputs that once broke a promise, by target; every run tries them first."""

NAMES = (
    *(
        "object-repository",
        "object-manifest",
        "object-transaction",
        "object-record_0",
        "object-record_64",
        "object-record_65",
        "object-record_66",
        "object-record_71",
        "object-checkpoint",
        "object-history",
        "object-collection",
        "object-survivors",
        "object-repository_record_11",
        "object-repository_record_64",
        "object-repository_record_66",
        "object-hint",
        "object-intent",
        "object-changes",
        "object-measured_changes",
        "object-statistics_i",
        "object-statistics_u",
        "object-statistics_f",
    ),
    *(
        "part-envelope",
        "part-msgpack",
        "part-note",
        "part-entry-0",
        "part-entry-1",
        "part-entry-65",
        "part-entry-66",
        "part-entry-67",
        "part-entry-68",
        "part-entry-69",
        "part-entry-70",
        "part-entry-71",
        "part-log",
        "part-column",
        "part-presence",
        "part-reads",
        "part-uncommitted",
    ),
    *(
        "repository",
        "listing",
        "merge",
        "documents",
    ),
    *(
        "text-store-key",
        "text-object-key",
        "text-name",
        "text-id",
        "text-chunks",
        "text-url",
        "text-virtual-url",
    ),
)
"""Names of all targets, in order; making these takes a second or two, which collecting tests should not."""

_MEMORY_EACH = 16
"""One trial in so many is measured in memory too, which takes a few times as long."""

_MOST_KEPT = 400


@cache
def targets() -> dict[str, Target]:
    """Return all targets by name."""
    found = [*object_targets(), *part_targets(), *store_targets(), *text_targets()]
    return {target.name: target for target in found}


def corpus_of(target: Target) -> list[bytes]:
    """Return the inputs that are kept for a target."""
    folder = CORPUS / target.name
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []


@dataclass
class Report:
    """What rounds of one target came to.

    Parameters
    ----------
    target
        Its name.
    trials, accepted
        Inputs tried, and those among them that were valid.
    answers
        How many different answers there were: places of refusal, shapes of values.
    """

    target: str
    trials: int = 0
    accepted: int = 0
    answers: set[object] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.target}: {self.trials} inputs, {self.accepted} valid, {len(self.answers)} different answers"


def fuzz(
    target: Target, seed: int, *, trials: int | None = None, seconds: float = 0.0, findings: Path | None = None
) -> Report:
    """Try inputs made of valid ones, and of those that had a new answer.

    Parameters
    ----------
    target
        What to try.
    seed
        Of all chance.
    trials
        How many; None for as many as there is time.
    seconds
        How long to go on where `trials` is None.
    findings
        Where to keep an input that breaks a promise.

    Raises
    ------
    BrokenPromiseError
        By the first such input; the message says how to try it again.
    """
    rng = Random(f"{target.name}/{seed}")
    report = Report(target.name)
    pool = [*target.seeds, *corpus_of(target)]
    for data in _inputs(rng, target, pool, _until(trials, seconds)):
        memory = report.trials % _MEMORY_EACH == 0
        try:
            outcome = target.check(data, memory=memory)
        except BrokenPromiseError as error:
            raise BrokenPromiseError(f"{error}\n{_kept(target, data, findings)} (seed {seed})") from error
        report.trials += 1
        report.accepted += outcome.accepted
        if outcome not in report.answers and not memory:
            report.answers.add(outcome)
            if len(pool) < _MOST_KEPT and len(data) < 1 << 14:
                pool.append(data)
    return report


def _until(trials: int | None, seconds: float) -> Callable[[int], bool]:
    end = time.monotonic() + seconds
    return (lambda done: time.monotonic() < end) if trials is None else (lambda done: done < trials)


def _inputs(rng: Random, target: Target, pool: list[bytes], more: Callable[[int], bool]) -> Iterator[bytes]:
    done = 0
    for data in list(pool):
        yield data
        done += 1
    while more(done):
        yield target.change(rng, rng.choice(pool), target)
        done += 1


def _kept(target: Target, data: bytes, findings: Path | None) -> str:
    """Keep an input where somebody will find it, and say how to try it again."""
    if findings is None:
        return f"input: {data[:2000]!r}"
    path = findings / target.name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"input kept: python -m tests.fuzz --target {target.name} --input {path}"
