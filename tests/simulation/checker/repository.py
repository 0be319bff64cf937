"""The repository log, read a second time: branches, tags and watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from tests.simulation.checker.decoder import Reader, chained, id_text, reading
from tests.simulation.checker.violations import DecodingError

__all__ = ["COLLECTED", "Entry", "RefLog", "Table", "read_repository"]

TAG_CREATED, TAG_DELETED, BRANCH_CREATED, BRANCH_DELETED, SETTING, WATERMARK, COLLECTED, EXPIRED = range(8)
_EVERY = 64
_MAIN = "main"

Ref = tuple[str, str]
"""Kind (``branch`` or ``tag``) and name."""


@dataclass(frozen=True)
class Entry:
    """One entry of the repository log."""

    number: int
    operation: int
    name: str
    snapshot: bytes | None
    origin: tuple[str, int, bytes] | None
    watermark: bytes | None
    value: Any = None

    @property
    def closes(self) -> bool | None:
        """Whether nothing may be committed from here on; None where it says nothing of that."""
        if self.operation != SETTING or self.name != "status":
            return None
        return bool(self.value["availability"] == "read_only")

    @property
    def ref(self) -> Ref | None:
        """The branch or tag that it is about; None for none."""
        if self.operation in (TAG_CREATED, TAG_DELETED):
            return "tag", self.name
        if self.operation in (BRANCH_CREATED, BRANCH_DELETED):
            return "branch", self.name
        return None

    @property
    def creates(self) -> bool:
        """Whether the branch or tag is there from here on."""
        return self.operation in (TAG_CREATED, BRANCH_CREATED)


@dataclass
class Table:
    """What the entries up to one make.

    Parameters
    ----------
    refs
        What creates each branch or tag that is there; nothing for the first branch.
    burnt
        Names of tags that were deleted.
    watermark
        The highest one.
    """

    refs: dict[Ref, Entry | None] = field(default_factory=lambda: {("branch", _MAIN): None})
    burnt: set[str] = field(default_factory=set)
    watermark: bytes = bytes(12)

    def copy(self) -> Table:
        """Return one that can be changed."""
        return Table(dict(self.refs), set(self.burnt), self.watermark)

    def add(self, entry: Entry) -> str | None:
        """Apply an entry; returns what is wrong with it."""
        ref, wrong = entry.ref, None
        if entry.watermark is not None and entry.operation == WATERMARK:
            self.watermark = max(self.watermark, entry.watermark)
        if ref is None:
            return None
        if entry.creates:
            if ref in self.refs or (ref[0] == "tag" and ref[1] in self.burnt):
                wrong = f"it creates {ref[0]} {ref[1]!r}, which there is, or was"
            if entry.origin is not None and entry.origin[2] < self.watermark:
                wrong = f"it creates {ref[0]} {ref[1]!r} with a checkpoint below the watermark"
            self.refs[ref] = entry
        else:
            if ref not in self.refs:
                wrong = f"it deletes {ref[0]} {ref[1]!r}, which there is not"
            self.refs.pop(ref, None)
            if ref[0] == "tag":
                self.burnt.add(ref[1])
        return wrong

    def tags(self) -> Iterator[tuple[str, Entry]]:
        """Iterate over the tags that are there."""
        return ((name, entry) for (kind, name), entry in self.refs.items() if kind == "tag" and entry is not None)


@dataclass
class RefLog:
    """The repository log.

    Parameters
    ----------
    entries
        In order.
    tables
        What they make; the first one is that before all entries.
    broken
        What is wrong with them: key and description.
    """

    entries: list[Entry] = field(default_factory=list)
    tables: list[Table] = field(default_factory=lambda: [Table()])
    broken: list[tuple[str, str]] = field(default_factory=list)

    @property
    def table(self) -> Table:
        """The newest table."""
        return self.tables[-1]


def read_repository(reader: Reader) -> RefLog:
    """Read all records, and replay them."""
    found = RefLog()
    prefix = f"refs/{reader.repository}/repository/"
    numbers = sorted(int(key[len(prefix) :]) for key in reader.objects if key.startswith(prefix))
    if numbers != list(range(1, len(numbers) + 1)):
        found.broken.append((prefix, f"its records are {numbers}"))
        return found
    known: dict[int, Any] = {}
    digest = reader.log_start("")
    for number in numbers:
        key = reader.repository_key(number)
        try:
            with reading(key):
                owner, told, before, wires, table = reader.object(key, 12)
                first = (number - 1) // _EVERY * _EVERY + 1
                if told != number or len(wires) != number - first + 1 or (table is None) == (number % _EVERY == 0):
                    raise ValueError("it is that of another number, or does not carry what it has to")
                if id_text(owner) != reader.repository or before != digest:
                    raise ValueError("it is that of another repository, or goes on from another record")
                packed: Any = msgpack.packb(wires[-1])
                digest = chained(before, packed)
                if any(known.setdefault(at, wire) != wire for at, wire in enumerate(wires, first)):
                    raise ValueError("it carries another entry than its predecessor has")
                entry = _entry(number, wires[-1])
        except DecodingError as error:
            found.broken.append((error.key, error.what))
            return found
        after = found.table.copy()
        wrong = after.add(entry)
        if wrong is not None:
            found.broken.append((key, wrong))
        if table is not None and not _says(table, after):
            found.broken.append((key, "its table is not what the entries make"))
        found.entries.append(entry)
        found.tables.append(after)
    return found


def _entry(number: int, wire: Any) -> Entry:
    operation, _, name, snapshot, _, origin, value, watermark, _ = wire
    if operation not in range(8):
        raise ValueError(f"an entry of kind {operation}, which there is not")
    place = None if origin is None else (origin[0], origin[1], origin[2])
    return Entry(number, operation, name, snapshot, place, watermark, value[0])


def _says(wire: Any, table: Table) -> bool:
    tags, burnt, branches, _, watermark, _ = wire
    there = {("tag", tag[0]) for tag in tags} | {("branch", row[0]) for row in branches if not row[2]}
    return there == table.refs.keys() and set(burnt) == table.burnt and watermark == table.watermark
