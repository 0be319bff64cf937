"""A second reader of repositories, written from docs/format.md alone: nothing of the code that it reads after is used.

Every object is decoded once.  Logs are replayed from record 0, checkpoints are read for themselves, so that the one
can be compared with the other.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tests.simulation.checker.applying import ChunkChange, Touched, apply_chunks, apply_nodes, apply_rewrite
from tests.simulation.checker.branches import Branch, Commit, Rewrite
from tests.simulation.checker.decoding import (
    Cells,
    Coords,
    Objects,
    body,
    cells,
    column,
    id_text,
    key_name,
    manifest,
    texts,
    unpack,
    unzigzag,
)
from tests.simulation.checker.lives import Era, Life
from tests.simulation.checker.states import FILE, GROUP, Key, Layer, Node, Nodes, Snapshot
from tests.simulation.checker.violations import DecodingError

__all__ = ["Branch", "Commit", "HistoryRow", "Reader", "Rewrite", "chained", "id_text", "oldest_carried", "reading"]

BIRTH, COMMIT, REWRITE, RESET, DELETED, FENCE, EXPIRY = range(7)
LIMIT = 8
"""Packs that a body names at most."""
_MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError, struct.error)


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Turn whatever malformed bytes bring about into an error that names their object."""
    try:
        yield
    except _MALFORMED as error:
        raise DecodingError(key, f"{type(error).__name__}: {error}") from error


def _elsewhere(url: str, etag: str, modified: int, start: int, stop: int) -> bytes:
    raise ValueError(f"a virtual chunk at {url}, which was not handed to the reader")


@dataclass(frozen=True)
class HistoryRow:
    """One snapshot in a history page."""

    number: int
    id: bytes
    parent: bytes | None
    time: int
    message: str
    metadata: Any


class Reader:
    """Reads a repository.

    Parameters
    ----------
    objects
        Everything in it, by key.
    virtual
        Returns a range of the object at a URL, in the state with an entity tag, or of a time of modification.
    """

    def __init__(self, objects: Objects, virtual: Callable[[str, str, int, int, int], bytes] = _elsewhere) -> None:
        self.objects = objects
        self.virtual = virtual
        self._records: dict[tuple[str, int], Any] = {}
        self._links: dict[tuple[str, int], bytes] = {}
        self._manifests: dict[bytes, tuple[Any, Cells, dict[Coords, str]]] = {}
        self._branches: dict[str, Branch] = {}
        self.attached: dict[bytes, bytes] = {}
        """Manifests that are attached to records, by the ids of their layers."""

    # -- keys -----------------------------------------------------------------------------------------------

    @cached_property
    def repository(self) -> str:
        """The id of the repository, as keys have it; that of none where there is no repository yet."""
        return id_text(self.object("repo", 1)[0]) if "repo" in self.objects else "0" * 20

    def log_prefix(self, branch: str) -> str:
        """Return what the keys of a branch's records start with."""
        return f"refs/{self.repository}/branch/{key_name(branch)}/"

    def record_key(self, branch: str, number: int) -> str:
        """Return the key of a record."""
        return f"{self.log_prefix(branch)}{number:012d}"

    def repository_key(self, number: int) -> str:
        """Return the key of a record of the repository log."""
        return f"refs/{self.repository}/repository/{number:012d}"

    def page_key(self, branch: str, level: int, index: int) -> str:
        """Return the key of a history page."""
        return f"history/{self.repository}/{key_name(branch)}/{level}/{index:012d}"

    def survivors_key(self, branch: str, identifier: bytes) -> str:
        """Return the key of a list of survivors."""
        return f"history/{self.repository}/{key_name(branch)}/kept/{id_text(identifier)}"

    # -- records --------------------------------------------------------------------------------------------

    def object(self, key: str, kind: int) -> Any:
        """Return the body of an object."""
        data = self.objects.get(key)
        if data is None:
            raise DecodingError(key, "does not exist")
        with reading(key):
            return body(key, data, kind)

    def record(self, branch: str, number: int) -> Any:
        """Return a record: branch, number, body, attachments, previous."""
        found = self._records.get((branch, number))
        if found is None:
            key = self.record_key(branch, number)
            owner, *found = self.object(key, 3)
            if len(found) != 6 or id_text(owner) != self.repository or found[:2] != [branch, number]:
                raise DecodingError(key, "names another repository, branch or number than its key")
            self._links[branch, number] = found.pop(2)
            self._records[branch, number] = found
        return found

    def link(self, branch: str, number: int) -> bytes:
        """Return the digest of the log before a record, as that says."""
        self.record(branch, number)
        return self._links[branch, number]

    def log_start(self, branch: str) -> bytes:
        """Return the digest of a log without records."""
        return chained(self.object("repo", 1)[0], branch.encode())

    def numbers(self, branch: str) -> list[int]:
        """Return the numbers of the records that there are, in order."""
        prefix = self.log_prefix(branch)
        names = [key[len(prefix) :] for key in self.objects if key.startswith(prefix)]
        return sorted(int(name) for name in names if len(name) == 12 and name.isdigit())

    def tip(self, branch: str) -> int:
        """Return the number of the newest record."""
        return self.numbers(branch)[-1]

    def bodies(self, branch: str, last: int) -> dict[int, bytes]:
        """Return the entries of a log up to a record, by reading only the records that it takes."""
        found: dict[int, bytes] = {}
        at = last
        while at >= 0:
            _, _, own, _, previous = self.record(branch, at)
            oldest = oldest_carried(at)
            if len(previous) != at - oldest:
                raise DecodingError(self.record_key(branch, at), f"carries {len(previous)} bodies, not {at - oldest}")
            found[at] = own
            found.update(enumerate(previous, oldest))
            at = oldest - 1
        return dict(sorted(found.items()))

    # -- replaying ------------------------------------------------------------------------------------------

    def branch(self, name: str) -> Branch:
        """Return a log from record 0 to the newest."""
        if name in self._branches:
            return self._branches[name]
        log: Branch | None = None
        for number, encoded in self.bodies(name, self.tip(name)).items():
            key = self.record_key(name, number)
            with reading(key):
                found, entry, content = unpack(key, encoded)
                if found != number or (entry == BIRTH) != (number == 0):
                    raise DecodingError(key, f"its body is entry {entry} of record {found}")
                if log is None:
                    log = self._birth(name, content)
                elif entry == COMMIT:
                    self._commit(log, number, content)
                elif entry == REWRITE:
                    self._rewrite(log, number, content)
                else:
                    self._live(log, number, entry, content)
                if len(log.lives) == number:
                    log.lives.append(log.lives[-1])
        if log is None:
            raise DecodingError(self.record_key(name, 0), "does not exist")
        self._branches[name] = log
        return log

    def replay(self, branch: str, last: int | None = None, until: bytes | None = None) -> Snapshot:
        """Return a snapshot from the log alone: the last one of a record, or the one of an id."""
        log = self.branch(branch)
        found = None if until is None else log.snapshot(until)
        return found or log.states[-1 if last is None else last]

    def _birth(self, name: str, content: Any) -> Branch:
        identifier, parent, time, origin, fence, cause = content
        life = Life().begun(0, origin, fence, cause)
        if origin is None:
            first = Snapshot(identifier, parent, {}, {}, name, 0, time, "Repository initialized")
        else:
            first = self._origin(name, 0, identifier, parent, origin)
        era = Era(0, 0, first, life.origin)
        return Branch(
            name,
            self.log_prefix(name),
            first,
            life.origin and life.origin[:2],
            states=[first],
            eras=[era],
            lives=[life],
        )

    def _origin(self, name: str, number: int, identifier: bytes, parent: bytes | None, origin: Any) -> Snapshot:
        """Return the snapshot that a branch begins with, as one of a record of that branch."""
        source, at, checkpoint = origin
        state = self.checkpoint(checkpoint)
        if (state.branch, state.number, state.id, state.parent) != (source, at, identifier, parent):
            raise DecodingError(self.record_key(name, number), "its checkpoint is that of another snapshot")
        return replace(state, branch=name, number=number)

    def _live(self, log: Branch, number: int, entry: int, content: Any) -> None:
        """Apply an entry that changes no data."""
        life, state = log.lives[-1], replace(log.states[-1], number=number)
        if entry == RESET:
            identifier, parent, _, origin, before, fence, cause = content
            if before != life.told():
                raise ValueError("a reset that says of its branch what does not hold")
            life = life.begun(number, origin, fence, cause)
            state = self._origin(log.name, number, identifier, parent, origin)
            log.eras.append(Era(number, len(log.commits), state, life.origin))
        elif entry == DELETED:
            identifier, parent, time, before = content
            if (identifier, parent, before) != (state.id, state.parent, life.told()):
                raise ValueError("a deletion that says something else of its branch than the log before it")
            state = replace(state, nodes={}, keys={}, time=time, message="", metadata=None)
            life = life.ended(number)
        elif entry == FENCE:
            watermark, _, read_only = content
            life = life.fenced(number, watermark, read_only)
        elif entry == EXPIRY:
            _, upto, base, survivors = content
            if not 0 <= upto < number:
                raise ValueError(f"an expiry up to record {upto}")
            life = life.aged(upto, base, survivors)
        else:
            raise ValueError(f"entry {entry}, which there is not")
        log.states.append(state)
        log.lives.append(life)

    def _commit(self, log: Branch, number: int, content: Any) -> None:
        transactions, refused = content
        if not transactions or len(refused) % 12:
            raise ValueError("a commit without transactions, or with refusals that are no ids")
        log.refusals += [(number, refused[at : at + 12]) for at in range(0, len(refused), 12)]
        before = log.states[-1]
        for place, transaction in enumerate(transactions):
            identifier, parent, time, isolation, note, changes, first, amends, packs = transaction
            follows = parent == before.id if amends is None else (amends, parent) == (before.id, before.parent)
            if not follows:
                raise ValueError(f"transaction {place} does not follow the snapshot before it")
            log.brought += _named(number, packs)
            if isinstance(changes, bytes):
                log.changes.append((number, changes))
            attachments = self.record(log.name, number)[3][first:]
            message, metadata = self._note(log.name, number, attachments[note] if isinstance(note, int) else note)
            nodes, chunks = self._changes(log.name, number, changes, attachments)
            state, touched = Nodes(before.nodes, before.keys), Touched()
            apply_nodes(state, nodes, touched)
            apply_chunks(state, [self._chunk_change(c, log.name, number, first) for c in chunks], touched)
            after = Snapshot(identifier, parent, state.nodes, state.keys, log.name, number, time, message, metadata)
            log.commits.append(Commit(log.name, number, place, isolation, before, after, touched, amends))
            before = after
        log.states.append(before)

    def _note(self, branch: str, number: int, encoded: bytes) -> tuple[str, Any]:
        message, metadata = unpack(self.record_key(branch, number), encoded)
        if not isinstance(message, str) or not (metadata is None or isinstance(metadata, dict)):
            raise TypeError("a note that is not message and metadata")
        return message, metadata

    def _changes(self, branch: str, number: int, changes: Any, attachments: list[bytes]) -> Any:
        if isinstance(changes, bytes):
            return self.object("transactions/" + id_text(changes), 7)
        if isinstance(changes, int):
            return unpack(self.record_key(branch, number), attachments[changes])
        return changes

    def _chunk_change(self, change: Any, branch: str, number: int, first: int) -> ChunkChange:
        node, described, told, appended = change
        layer = self.layer(described, branch, number, first)
        if told is not None:
            presence, data = told
            if set(cells(described[1], described[2], presence, data, described[3])) != layer.cells.keys():
                raise ValueError("a change of chunks tells of other cells than its manifest")
        if appended and described[7] is not None:
            raise ValueError("an appended layer with a shift of its own")
        return ChunkChange(node, layer, appended)

    def _rewrite(self, log: Branch, number: int, content: Any) -> None:
        before = log.states[-1]
        state = Nodes(before.nodes, before.keys)
        replacements, packs = content
        log.brought += _named(number, packs)
        for node, first, last, count, added in replacements:
            if node not in state.keys:
                continue
            layers = [self.layer(layer, log.name, number) for layer in added]
            old = apply_rewrite(state, node, first, last, count, layers)
            new = state.by_id(node)
            assert new is not None
            log.rewrites.append(Rewrite(number, old, new))
        log.states.append(replace(before, nodes=state.nodes, number=number))

    # -- layers ---------------------------------------------------------------------------------------------

    def layer(self, described: Any, branch: str, number: int, first: int = 0) -> Layer:
        """Return a layer as a log or a rewrite describes it, with all that its manifest says."""
        identifier, low, high, count, deletions, place, where, shift = described
        carrier = ""
        if place == 0:
            key = "manifests/" + id_text(identifier)
            data = self.objects.get(key)
            if data is None:
                raise DecodingError(key, "does not exist, though a layer names it")
        elif place == 1:
            key, data = f"manifest in record {number} of {branch!r}", where
        else:
            at = (branch, number, first + where) if isinstance(where, int) else tuple(where)
            carrier = self.record_key(at[0], at[1])
            key = f"attachment {at[2]} of {self.record_key(at[0], at[1])}"
            data = self.attached[identifier] = self.record(at[0], at[1])[3][at[2]]
        box, found, packs = self._manifest(key, data)
        vector = shift or [0] * len(low)
        if [[c + s for c, s in zip(bound, vector, strict=True)] for bound in box] != [list(low), list(high)]:
            raise DecodingError(key, "its box is not that of its layer")
        if count != len(found) or deletions != (None in found.values()):
            raise DecodingError(key, "its count, or whether it deletes, is not as its layer says")
        if any(vector):
            found = {tuple([c + s for c, s in zip(x, vector, strict=True)]): data for x, data in found.items()}
            packs = {tuple([c + s for c, s in zip(x, vector, strict=True)]): pack for x, pack in packs.items()}
        return Layer(identifier, found, carrier or (key if place == 0 else ""), packs)

    def _manifest(self, key: str, data: bytes) -> tuple[Any, Cells, dict[Coords, str]]:
        known = self._manifests.get(data)
        if known is None:
            with reading(key):
                value = body(key, data, 6)
                known = self._manifests[data] = value[0], *manifest(key, value, self.objects, self.virtual)
        return known

    def chunks(self, node: Node) -> dict[Coords, bytes]:
        """Return every chunk of a node."""
        return dict(node.chunks)

    # -- checkpoints ----------------------------------------------------------------------------------------

    def checkpoint(self, identifier: bytes) -> Snapshot:
        """Return the snapshot of a checkpoint; branch and number are those of its record."""
        key = "snapshots/" + id_text(identifier)
        with reading(key):
            branch, number, snapshot, parent, time, note, table, _, _, _ = self.object(key, 5)
            message, metadata = unpack(key, note)
            nodes: dict[Key, Node] = {}
            for node in self._nodes(table):
                if node.key in nodes:
                    raise ValueError(f"two nodes at {'/' + node.path!r}")
                nodes[node.key] = node
        keys = {node.id: k for k, node in nodes.items()}
        return Snapshot(snapshot, parent, nodes, keys, branch, number, time, message, metadata)

    def pages(self, identifier: bytes) -> list[tuple[int, int, bytes, bytes]]:
        """Return the page references of a checkpoint: level, index, lowest and highest id."""
        found = self.object("snapshots/" + id_text(identifier), 5)[7]
        return [(level, index, low, high) for level, index, low, high in found]

    def life(self, identifier: bytes) -> Any:
        """Return what a checkpoint says of the branch itself."""
        return self.object("snapshots/" + id_text(identifier), 5)[8]

    def digest(self, identifier: bytes) -> bytes | None:
        """Return the digest of the log that a checkpoint holds."""
        return self.object("snapshots/" + id_text(identifier), 5)[9]  # type: ignore[no-any-return]

    def _nodes(self, table: Any) -> Iterator[Node]:
        count, ids, path_lengths, paths, kinds, per_node, names, name, lengths, contents, layer_counts, layers = table
        per = column(per_node, count)
        total = sum(per)
        named = [names[n] for n in column(name, total)]
        documents = iter(zip(named, texts(lengths, contents, total), strict=True))
        all_layers = iter(self._layers(layers))
        layered = column(layer_counts, count)
        for i, (path, kind) in enumerate(zip(texts(path_lengths, paths, count), column(kinds, count), strict=True)):
            own = dict([next(documents) for _ in range(per[i])])
            mine = tuple([next(all_layers) for _ in range(layered[i])])
            if (kind == GROUP and mine) or (kind == FILE and own) or len(own) != per[i]:
                raise ValueError(f"node {i} has what its kind must not have")
            yield Node(ids[12 * i : 12 * i + 12], path.decode(), kind, own).with_layers(mine)
        if next(all_layers, None) is not None:
            raise ValueError("layers that belong to no node")

    def _layers(self, table: Any) -> Iterator[Layer]:
        m, ids, dimensions, lows, sides, counts, flags, lengths, inline, *rest = table
        branch, branches, record, attachment, shifts = rest
        dims, flag = column(dimensions, m), column(flags, m)
        low, side = iter(column(lows, sum(dims))), iter(column(sides, sum(dims)))
        inlined = iter(texts(lengths, inline, sum(f & 3 == 1 for f in flag)))
        many = sum(f & 3 == 2 for f in flag)
        attached = iter(zip(column(branch, many), column(record, many), column(attachment, many), strict=True))
        shift = iter(column(shifts, sum(d for d, f in zip(dims, flag, strict=True) if f & 8)))
        for i, (count, f) in enumerate(zip(column(counts, m), flag, strict=True)):
            where: Any = None
            if f & 3 == 1:
                where = next(inlined)
            elif f & 3 == 2:
                at = next(attached)
                where = [branches[at[0]], at[1], at[2]]
            first = [next(low) for _ in range(dims[i])]
            high = [a + next(side) for a in first]
            vector = [unzigzag(next(shift)) for _ in range(dims[i])] if f & 8 else None
            yield self.layer([ids[12 * i : 12 * i + 12], first, high, count, bool(f & 4), f & 3, where, vector], "", -1)

    # -- the rest -------------------------------------------------------------------------------------------

    def history(self, branch: str, level: int, index: int) -> tuple[list[HistoryRow], list[tuple[int, bytes]]]:
        """Return the rows of a history page, and the checkpoints that it names."""
        key = self.page_key(branch, level, index)
        with reading(key):
            page = self.object(key, 8)
            if page[:3] != [branch, level, index]:
                raise ValueError("names another page than its key")
            rows = self._rows(key, page[3])
            checkpoints = page[4]
            return rows, [(number, identifier) for number, identifier in checkpoints]

    def survivors(self, branch: str, identifier: bytes) -> tuple[int, list[HistoryRow], list[bytes]]:
        """Return up to where a list of survivors reaches, the snapshots, and a checkpoint of each."""
        key = self.survivors_key(branch, identifier)
        with reading(key):
            found, upto, rows, checkpoints, _links = self.object(key, 13)
            listed = self._rows(key, rows)
            ids = [checkpoints[at : at + 12] for at in range(0, len(checkpoints), 12)]
            if found != branch or len(ids) != len(listed) or any(row.number > upto for row in listed):
                raise ValueError("names another branch than its key, or what it lists does not fit together")
            return upto, listed, ids

    def _rows(self, key: str, table: Any) -> list[HistoryRow]:
        count, numbers, ids, parents, times, lengths, notes = table
        columns = zip(column(numbers, count), column(times, count), texts(lengths, notes, count), strict=True)
        rows: list[HistoryRow] = []
        for i, (number, time, note) in enumerate(columns):
            parent = parents[12 * i : 12 * i + 12]
            message, metadata = unpack(key, note)
            own = ids[12 * i : 12 * i + 12]
            rows.append(HistoryRow(number, own, parent if any(parent) else None, time, message, metadata))
        return rows

    def intent(self, key: str, branch: str) -> tuple[int, int, list[bytes]]:
        """Return what an intent says: its record, the last one that may take it, and the ids of its transactions."""
        with reading(key):
            found, number, last, proposals = self.object(key, 11)
            digits, _, _ = key.rpartition("/")[2].partition("-")
            if (found, f"{number:012d}") != (branch, digits) or not number < last <= number + 32 or not proposals:
                raise ValueError("names another record than its key, or a last one that is too far away")
            return number, last, [proposal[0] for proposal in proposals]

    def hint(self, branch: str) -> tuple[int, bytes]:
        """Return number and checkpoint that a hint names."""
        key = f"hints/{key_name(branch)}"
        with reading(key):
            owner, number, checkpoint, _ = self.object(key, 9)
            if id_text(owner) != self.repository:
                raise ValueError("it is that of another repository")
            state = self.checkpoint(checkpoint)
            if (state.branch, state.number) != (branch, number):
                raise ValueError("its checkpoint is that of another record")
            return number, checkpoint


def chained(before: bytes, entry: bytes) -> bytes:
    """Return the digest of a log with one more entry."""
    return hashlib.blake2b(before + entry, digest_size=8).digest()


def _named(number: int, packs: bytes | None) -> list[tuple[int, bytes]]:
    if packs is not None and (len(packs) % 12 or len(packs) > 12 * LIMIT):
        raise ValueError("it names packs that are no ids, or too many")
    return [(number, packs[at : at + 12]) for at in range(0, len(packs or b""), 12) if packs is not None]


def oldest_carried(number: int) -> int:
    """Return the number of the oldest body that a record carries; its own for none."""
    skip = 8 if number % 8 else 64 if number % 64 else 512
    return (number - 1) // skip * skip + 1 if number else 0
