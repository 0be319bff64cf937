"""Rule "history": records without gaps, each with the bodies that it has to carry, byte for byte."""

from __future__ import annotations

from collections.abc import Container, Iterator

from tests.simulation.checker.decoder import Branch, Reader, chained, oldest_carried
from tests.simulation.checker.decoding import id_text
from tests.simulation.checker.logs import Logs, id_bytes
from tests.simulation.checker.retained import needs_of, packs_of
from tests.simulation.checker.violations import DecodingError, Violation

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
        yield from _fences(branch, set(_borrowed(logs, branch)))


def _records(reader: Reader, name: str) -> Iterator[Violation]:
    numbers = reader.numbers(name)
    if numbers != list(range(len(numbers))):
        missing = sorted(set(range(numbers[-1])) - set(numbers))
        yield Violation(_RULE, f"there are no records {missing[:5]} before {numbers[-1]}", f"branch {name!r}")
    bodies: dict[int, bytes] = {}
    digests = {-1: reader.log_start(name)}
    for number in numbers:
        key = reader.record_key(name, number)
        try:
            _, _, own, _, previous = reader.record(name, number)
        except (DecodingError, ValueError) as error:
            yield Violation(_RULE, str(error), key)
            continue
        bodies[number] = own
        before = reader.link(name, number)
        if digests.get(number - 1, before) != before:
            yield Violation(_RULE, f"it goes on from another record {number - 1} than the one before it", key)
        digests[number] = chained(before, own)
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
            yield Violation(_RULE, what, branch.key(number))


def _intents(reader: Reader, name: str, branch: Branch) -> Iterator[Violation]:
    """Check intents that are left: what was proposed for a record was committed after it."""
    prefix = reader.log_prefix(name)
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


def _fences(branch: Branch, borrowed: Container[tuple[int, bytes]]) -> Iterator[Violation]:
    """Check that nothing is committed where nothing may be, and that nothing is brought in from below a watermark.

    What undoes or repeats a snapshot borrows packs, of any age: whether these are kept is another rule's business.
    """
    for commit in branch.commits:
        before = branch.lives[commit.number - 1]
        if before.read_only or before.deleted:
            what = "it commits, and the branch is " + ("deleted" if before.deleted else "closed")
            yield Violation(_RULE, what, branch.key(commit.number))
    for number, identifier in [*branch.changes, *_brought(branch)]:
        if (number, identifier) not in borrowed and identifier < branch.lives[number - 1].fence:
            what = f"it brings in {id_text(identifier)}, which is below the watermark of a collection"
            yield Violation(_RULE, what, branch.key(number))


def _borrowed(logs: Logs, branch: Branch) -> Iterator[tuple[int, bytes]]:
    """Return the packs of other snapshots that commits may borrow which undo or repeat one, with their records."""
    for commit in branch.commits:
        told = commit.after.metadata or {}
        repeated = logs.snapshot(str(told["cherry_picked_from"])) if "cherry_picked_from" in told else None
        undone = logs.snapshot(str(told["reverts"])) if "reverts" in told else None
        if undone is not None and undone.parent is not None:
            repeated = logs.by_id(undone.parent)
        packs = () if repeated is None else packs_of(repeated)
        yield from ((commit.number, id_bytes(key.removeprefix("chunks/"))) for key in packs)


def _brought(branch: Branch) -> Iterator[tuple[int, bytes]]:
    """Return the packs and manifests that records bring in, which are objects of their own, with their numbers."""
    known: dict[int, set[str]] = {}
    for number, pack in branch.brought:
        if number not in known:
            known[number] = {key for key, _ in needs_of(branch.states[number - 1])}
        if "chunks/" + id_text(pack) not in known[number]:
            yield number, pack
    for number in range(1, len(branch.states)):
        before, after = branch.states[number - 1], branch.states[number]
        if branch.lives[number].start == number:
            continue
        for key, node in after.nodes.items():
            older = before.by_id(node.id) or before.nodes.get(key)
            known_layers = {layer.id for layer in older.layers} if older is not None else set()
            for layer in node.layers if older is None or older.layers is not node.layers else ():
                if layer.id not in known_layers and layer.carrier.startswith("manifests/"):
                    yield number, layer.id


def _ids(name: str, branch: Branch, seen: dict[bytes, str]) -> Iterator[Violation]:
    """Check that no snapshot is made twice; that each follows the one before was checked in reading."""
    for commit in branch.commits:
        where = f"record {commit.number} of {name!r}"
        if commit.id in seen:
            yield Violation(_RULE, f"it makes snapshot {id_text(commit.id)}, which {seen[commit.id]} has made", where)
        seen.setdefault(commit.id, where)
