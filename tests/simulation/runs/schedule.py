"""A run as a schedule that people can read: who did what when, and what came of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import inf

from tests.simulation.actors.documents import DOCUMENT
from tests.simulation.observations import (
    Ancestry,
    Append,
    Attempt,
    Committed,
    Create,
    Delete,
    ListingRead,
    Merge,
    Move,
    Operation,
    Outcome,
    Rebase,
    RefCreation,
    Refused,
    Seen,
    TipLook,
    Transaction,
    Unknown,
    Update,
    ValueRead,
    WriteChunk,
    WriteFile,
)
from tests.simulation.runs.run import Report

__all__ = ["schedule"]

_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{20}\b")
_SHOWN = 6
"""Last characters of an id that are shown: they are random, and tell those of one run apart."""

Line = tuple[float, str, str]
"""Time, process, and what happened."""


def schedule(report: Report, *, requests: bool = True) -> str:
    """Return a run as text, a line for each event.

    Parameters
    ----------
    report
        Of the run.
    requests
        Whether requests are shown, too; otherwise only what actors meant, did and were told.
    """
    lines: list[Line] = []
    for transaction in report.notes.transactions.values():
        lines += _transaction(transaction)
    for seen in report.notes.seen:
        lines += _seen(seen)
    if requests:
        lines += [
            (event.time, event.process, f"    {event.operation:<14} {event.key}  -> {event.effect}")
            for event in report.trace
        ]
    # What was begun and never answered comes last.
    lines = sorted(((inf if time is None else time, process, what) for time, process, what in lines), key=_time)
    width = max((len(process) for _, process, _ in lines), default=0)
    text = [f"{time:10.4f}  {process:<{width}}  {what}" for time, process, what in lines]
    text += ["", *(f"violated: {violation}" for violation in report.violations)]
    return _ID.sub(lambda found: "~" + found.group()[-_SHOWN:], "\n".join(text))


def _time(line: Line) -> float:
    return line[0]


def _transaction(noted: Transaction) -> Iterator[Line]:
    process = noted.process
    if noted.transplants is None:
        yield noted.opened, process, f"{noted.label} opens {noted.branch} at {noted.base} ({noted.isolation})"
    else:
        way = noted.transplants.way
        yield noted.opened, process, f"{noted.label} is to {way} {noted.transplants.snapshot} on {noted.branch}"
    first = noted.attempts[0].began if noted.attempts else noted.opened
    for operation in noted.operations:
        yield first, process, f"{noted.label} has done: {_operation(operation)}"
    for attempt in noted.attempts:
        way = "amends" if noted.amends else "flushes" if noted.flushes else "commits"
        yield attempt.began, process, f"{noted.label} {way}, solver {_solver(attempt)}"
        if attempt.ended is not None and attempt.outcome is not None:
            yield attempt.ended, process, f"{noted.label} is told: {_outcome(attempt.outcome)}"
    for merge in noted.merges:
        yield first, process, f"{noted.label} {_merge(merge)}"


def _solver(attempt: Attempt) -> str:
    solver = attempt.solver
    if solver.kind != "basic":
        return solver.kind + (", waives reads" if solver.waives_reads else "")
    fails = [kind for kind in ("array", "group") if getattr(solver, f"fail_on_delete_of_updated_{kind}")]
    return f"basic, chunks {solver.on_chunk_conflict}" + (f", fails on delete of updated {fails}" if fails else "")


def _merge(merge: Merge) -> str:
    return f"merges {merge.path}{list(merge.coords)} over {merge.theirs} as {_bytes(merge.data)}"


def _operation(operation: Operation) -> str:
    match operation:
        case Create(path, documents):
            return f"create /{path} {_documents(documents)}"
        case Update(path, documents):
            return f"update /{path} {_documents(documents)}"
        case Delete(path):
            return f"delete /{path}"
        case Move(source, target):
            return f"move /{source} to /{target}"
        case WriteChunk(path, coords, data):
            return f"write /{path}{list(coords)} {_bytes(data)}"
        case WriteFile(key, data):
            return f"write file {key} {_bytes(data)}"
        case Append(path, axis, items, chunks):
            return f"append {items} to /{path} along {axis}: {', '.join(str(list(coords)) for coords in chunks)}"
        case Rebase(snapshot, solver):
            return f"rebase on {snapshot}, solver {solver.kind}"


def _documents(documents: Mapping[str, bytes | None]) -> str:
    return ", ".join(name if data is None else _document(data) for name, data in documents.items())


def _document(data: bytes) -> str:
    """Return what tells one document from another: kind, shape, chunks, attributes."""
    values = json.loads(data)
    shape = f" {values['shape']} in {values['chunk_grid']['configuration']['chunk_shape']}" if "shape" in values else ""
    return f"{values['node_type']}{shape} {values['attributes']}"


def _value(key: str, data: bytes | None) -> str:
    return _document(data) if data is not None and key.endswith(DOCUMENT) else _bytes(data)


def _bytes(data: bytes | None) -> str:
    return "nothing" if data is None else repr(data.rstrip(b".").decode(errors="replace"))


def _outcome(outcome: Outcome) -> str:
    match outcome:
        case Committed(snapshot):
            return f"committed as {snapshot}"
        case Refused(error, conflicts):
            return f"refused, {error} {', '.join(f'{kind} {path}' for kind, path in conflicts)}"
        case Unknown(reason):
            return f"unknown, {reason}"


def _seen(seen: Seen) -> Iterator[Line]:
    match seen:
        case ValueRead():
            yield seen.ended, seen.process, f"reads {seen.key} of {seen.snapshot}: {_value(seen.key, seen.data)}"
        case ListingRead():
            yield seen.ended, seen.process, f"lists {seen.prefix or '/'} of {seen.snapshot}: {' '.join(seen.names)}"
        case TipLook():
            yield seen.ended, seen.process, f"sees {seen.branch} at {seen.snapshot}"
        case Ancestry():
            yield seen.ended, seen.process, f"sees {len(seen.entries)} snapshots from {seen.snapshot} on"
        case RefCreation():
            yield seen.began, seen.process, f"creates {seen.kind} {seen.name} at {seen.snapshot}"
            if seen.ended is not None and seen.outcome is not None:
                yield seen.ended, seen.process, f"is told of {seen.kind} {seen.name}: {_outcome(seen.outcome)}"
        case _:
            yield getattr(seen, "ended", 0.0), seen.process, str(seen)
