"""Which snapshots are kept at a moment, worked out from the logs alone, and what reading them takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.simulation.checker.decoder import Branch
from tests.simulation.checker.decoding import Coords, id_text
from tests.simulation.checker.lives import Era
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.repository import Table
from tests.simulation.checker.states import Snapshot

__all__ = ["Held", "Need", "Root", "held_at", "needs_of", "packs_of"]

Need = tuple[str, str]
"""Key of an object, and of another one that does as well; nothing for none."""

Root = tuple[str, int, Snapshot]
"""Log, record, and the snapshot that a branch or tag is at there."""


@dataclass
class Held:
    """What is kept at a moment.

    Parameters
    ----------
    shown
        Snapshots in the history of a branch or a tag, which have not expired.
    roots
        Where branches and tags are, by ``branch main``, ``tag v1``.
    needs
        Every object that reading these takes, and for what.
    stretches
        Records that belong to a history that is shown: log, first, last.
    """

    shown: dict[bytes, Snapshot] = field(default_factory=dict[bytes, Snapshot])
    roots: dict[str, Root] = field(default_factory=dict[str, Root])
    needs: dict[Need, str] = field(default_factory=dict[Need, str])
    stretches: set[tuple[str, int, int]] = field(default_factory=set[tuple[str, int, int]])

    def need(self, key: str, what: str) -> None:
        """Add an object."""
        self.needs.setdefault((key, ""), what)


def held_at(logs: Logs, newest: Mapping[str, int], table: Table) -> Held:
    """Return what is kept where logs end with some records and the repository log makes some table."""
    held = Held()
    for (kind, name), entry in table.refs.items():
        root = _root(logs, newest, kind, name, None if entry is None else (entry.number, entry.origin))
        if root is not None:
            held.roots[f"{kind} {name}"] = root
    for what, root in held.roots.items():
        for need in needs_of(root[2]):
            held.needs.setdefault(need, what)
        if what.startswith("tag"):
            origin = table.refs["tag", what[4:]]
            assert origin is not None
            assert origin.origin is not None
            held.need("snapshots/" + id_text(origin.origin[2]), what)
        _history(logs, newest, held, root, what)
    for identifier in logs.flushed & logs.detached.keys():
        if table.watermark <= identifier:
            _add_detached(held, logs.detached[identifier], "no collection since")
    for name, last in newest.items():
        held.need(logs.reader.record_key(name, last), f"the number of the newest record of {name!r}")
    return held


def _root(
    logs: Logs, newest: Mapping[str, int], kind: str, name: str, made: tuple[int, tuple[str, int, bytes] | None] | None
) -> Root | None:
    """Return where a branch or a tag is."""
    log = logs.branches.get(name)
    number, origin = made or (0, None)
    if kind == "branch" and log is not None and name in newest and log.lives[newest[name]].cause >= number:
        at = newest[name]
        return None if log.lives[at].deleted else (name, at, log.states[at])
    if origin is None:
        return None
    source = logs.branches.get(origin[0])  # a tag, or a branch whose first record is yet to be written
    if source is None or origin[1] >= len(source.states):
        return None
    return origin[0], origin[1], logs.reader.checkpoint(origin[2])


def _history(logs: Logs, newest: Mapping[str, int], held: Held, root: Root, what: str) -> None:
    """Add what a history shows, from one log to the one that it began in."""
    name, last, top = root
    seen: set[tuple[str, int]] = set()
    wanted: bytes | None = top.id
    while (name, last) not in seen:
        seen.add((name, last))
        log = logs.branches.get(name)
        if log is None or name not in newest:
            return
        life = log.lives[newest[name]]
        era = _era(log, last)
        first = max(era.number, life.expired + 1)
        wanted = _detached(logs, held, wanted, what)
        wanted = _shown(logs, held, log, (era, first, last), wanted, what)
        if life.expired >= era.number:
            _survivors(logs, held, name, life.survivors, (era.number, last), what)
        if first <= last:
            held.stretches.add((name, first, last))
            _records(log, held, first, last, what)
        if life.base is not None and life.expired >= era.number:
            held.need("snapshots/" + id_text(life.base), what)
        if era.origin is None:
            return
        held.need("snapshots/" + id_text(era.origin[2]), what)
        name, last = era.origin[:2]


def _detached(logs: Logs, held: Held, wanted: bytes | None, what: str) -> bytes | None:
    """Add what a history shows that is on no branch; returns the next snapshot wanted."""
    flushed = None if wanted is None else logs.detached.get(wanted)
    if flushed is None:
        return wanted
    _add_detached(held, flushed, what)
    return flushed.parent


def _add_detached(held: Held, snapshot: Snapshot, what: str) -> None:
    """Add a snapshot that is found by its own checkpoint alone."""
    held.need("snapshots/" + id_text(snapshot.id), f"snapshot {id_text(snapshot.id)}, which {what} shows")
    _add(held, snapshot, what)


def _era(log: Branch, number: int) -> Era:
    return [era for era in log.eras if era.number <= number][-1]


def _shown(
    logs: Logs, held: Held, log: Branch, stretch: tuple[Era, int, int], wanted: bytes | None, what: str
) -> bytes | None:
    """Add the snapshots of an era that parents lead to, and that have not expired; returns the next one wanted."""
    era, first, last = stretch
    for commit in reversed(log.commits):
        if commit.id != wanted or not era.number < commit.number <= last:
            continue
        wanted = commit.after.parent
        if commit.number >= first:
            _add(held, commit.after, what)
    if era.origin is None and wanted == era.first.id and first <= era.number:
        _add(held, era.first, what)
    return wanted


def _add(held: Held, snapshot: Snapshot, what: str) -> None:
    if snapshot.id not in held.shown:
        held.shown[snapshot.id] = snapshot
        for need in needs_of(snapshot):
            held.needs.setdefault(need, f"snapshot {id_text(snapshot.id)}, which {what} shows")


def _survivors(logs: Logs, held: Held, name: str, survivors: bytes | None, span: tuple[int, int], what: str) -> None:
    """Add what has not expired of what is older than an expiry."""
    if survivors is None:
        return
    held.need(logs.reader.survivors_key(name, survivors), what)
    _, rows, checkpoints = logs.reader.survivors(name, survivors)
    for row, identifier in zip(rows, checkpoints, strict=True):
        if span[0] <= row.number <= span[1]:
            held.need("snapshots/" + id_text(identifier), what)
            _add(held, logs.reader.checkpoint(identifier), what)


def _records(log: Branch, held: Held, first: int, last: int, what: str) -> None:
    """Add the records of a stretch, and the change logs that they keep elsewhere."""
    for number in range(first, last + 1):
        held.need(log.key(number), what)
    for number, identifier in log.changes:
        if first <= number <= last:
            held.need("transactions/" + id_text(identifier), what)


def needs_of(snapshot: Snapshot) -> Iterator[Need]:
    """Return the objects that hold the chunks of a snapshot: manifests, and the packs of what is not written over."""
    for node in snapshot.nodes.values():
        seen: set[Coords] = set()
        for layer in reversed(node.layers):
            if layer.carrier.startswith("refs/"):
                yield layer.carrier, "manifests/" + id_text(layer.id)
            elif layer.carrier:
                yield layer.carrier, ""
            yield from {(pack, "") for cell, pack in layer.packs.items() if cell not in seen}
            seen |= layer.cells.keys()


def packs_of(snapshot: Snapshot) -> Iterator[str]:
    """Return the packs that the layers of a snapshot refer to."""
    for node in snapshot.nodes.values():
        for layer in node.layers:
            yield from layer.packs.values()
