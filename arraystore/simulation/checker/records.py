"""Rule "history": records without gaps, each with the bodies that it has to carry, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

from arraystore.simulation.checker.decoder import Branch, Reader, oldest_carried, record_key
from arraystore.simulation.checker.decoding import id_text, key_name
from arraystore.simulation.checker.logs import Logs
from arraystore.simulation.checker.violations import DecodingError, Violation

__all__ = ["broken_history"]

_RULE = "history"


def broken_history(logs: Logs) -> Iterator[Violation]:
    """Check all logs as they stand in their records."""
    seen: dict[bytes, str] = {}
    for name in logs.names():
        yield from _records(logs.reader, name)
    for name, branch in logs.branches.items():
        yield from _ids(name, branch, seen)
        yield from _refusals(name, branch)
        yield from _intents(logs.reader, name, branch)


def _records(reader: Reader, name: str) -> Iterator[Violation]:
    numbers = reader.numbers(name)
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(numbers[-1])) - set(numbers))
        yield Violation(_RULE, f"there are no records {missing[:5]} before {numbers[-1]}", f"branch {name!r}")
    bodies: dict[int, bytes] = {}
    for number in numbers:
        key = record_key(name, number)
        try:
            _, _, own, _, previous = reader.record(name, number)
        except (DecodingError, ValueError) as error:
            yield Violation(_RULE, str(error), key)
            continue
        bodies[number] = own
        oldest = oldest_carried(number)
        if len(previous) != number - oldest:
            yield Violation(_RULE, f"it carries {len(previous)} bodies, not {number - oldest}", key)
        for carried, body in enumerate(previous, oldest):
            if bodies.get(carried, body) != body:
                yield Violation(_RULE, f"it carries another body of record {carried} than that record has", key)


def _refusals(name: str, branch: Branch) -> Iterator[Violation]:
    """Check that no record refuses what is committed in it or before it: its owner would take it for a verdict."""
    committed = {commit.id: commit.number for commit in branch.commits}
    for number, identifier in branch.refusals:
        if committed.get(identifier, number + 1) <= number:
            what = f"it refuses {id_text(identifier)}, which record {committed[identifier]} has committed"
            yield Violation(_RULE, what, record_key(name, number))


def _intents(reader: Reader, name: str, branch: Branch) -> Iterator[Violation]:
    """Check intents that are left: what was proposed for a record was committed after it."""
    prefix = f"refs/branch/{key_name(name)}/"
    committed = {commit.id: commit.number for commit in branch.commits}
    for key in [key for key in reader.objects if key.startswith(prefix) and "-" in key[len(prefix) :]]:
        try:
            number, _, ids = reader.intent(key, name)
        except DecodingError as error:
            yield Violation(_RULE, error.what, error.key)
            continue
        early = [id_text(identifier) for identifier in ids if committed.get(identifier, number + 1) <= number]
        if early:
            yield Violation(_RULE, f"it proposes {early}, which had been committed by then", key)


def _ids(name: str, branch: Branch, seen: dict[bytes, str]) -> Iterator[Violation]:
    """Check that no snapshot is made twice; that each follows the one before was checked in reading."""
    for commit in branch.commits:
        where = f"record {commit.number} of {name!r}"
        if commit.id in seen:
            yield Violation(_RULE, f"it makes snapshot {id_text(commit.id)}, which {seen[commit.id]} has made", where)
        seen.setdefault(commit.id, where)
