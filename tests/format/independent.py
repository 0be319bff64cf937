"""A second reader of repositories, written from docs/format.md alone: nothing of arraystore is imported.

It is slow, plain and complete enough to tell every node and every chunk of a branch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import msgpack
import numpy as np
from numcodecs import zstd

Objects = Mapping[str, bytes]
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~")


@dataclass
class Node:
    """A node and its layers as (manifest bytes, shift), oldest first."""

    id: bytes
    path: str
    kind: int
    documents: dict[str, bytes]
    layers: list[tuple[bytes, bytes, tuple[int, ...]]] = field(default_factory=list)


@dataclass
class Snapshot:
    """What a branch is at a record: nodes by (path, whether a file)."""

    id: bytes
    parent: bytes | None
    nodes: dict[tuple[str, bool], Node]

    def by_id(self, identifier: bytes) -> Node:
        return next(node for node in self.nodes.values() if node.id == identifier)


def id_text(identifier: bytes) -> str:
    number = int.from_bytes(identifier, "big")
    return "".join(ALPHABET[(number >> (5 * i)) & 31] for i in reversed(range(20)))


def name_in_key(name: str) -> str:
    encoded = "".join(chr(b) if chr(b) in UNRESERVED else f"%{b:02X}" for b in name.encode())
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def body(data: bytes, kind: int) -> Any:
    magic, version, found, codec, reserved, size, checksum = struct.unpack_from("<4sBBBBII", data)
    assert (magic, version, found, reserved) == (b"ARST", 1, kind, 0)
    assert google_crc32c.value(data[:12] + data[16:]) == checksum
    stored = data[16:]
    decoded = bytes(zstd.decompress(stored)) if codec == 1 else stored
    assert len(decoded) == size
    return msgpack.unpackb(decoded)


def column(data: bytes, count: int) -> list[int]:
    encoding, width = data[0], data[1]
    if encoding == 0:
        return [int.from_bytes(data[2 : 2 + width], "little")] * count
    planes = np.frombuffer(data[2:], "u1").reshape(width, count)
    items = [int.from_bytes(planes[:, i].tobytes(), "little") for i in range(count)]
    if encoding == 1:
        return items
    assert encoding == 2
    values, value = [], 0
    for item in items:
        value = (value + unzigzag(item)) % (1 << 64)
        values.append(value)
    return values


def unzigzag(item: int) -> int:
    return item // 2 if item % 2 == 0 else -(item + 1) // 2


def texts(lengths: bytes, blob: bytes, count: int) -> list[bytes]:
    found, at = [], 0
    for length in column(lengths, count):
        found.append(blob[at : at + length])
        at += length
    assert at == len(blob)
    return found


def cells(box: Any, presence: int, data: bytes, count: int) -> list[tuple[int, ...]]:
    low, high = box
    sides = [h - b for b, h in zip(low, high, strict=True)]
    total = int(np.prod(np.array(sides, dtype=object))) if sides else 1
    if presence == 0:
        numbers = list(range(total))
    elif presence == 1:
        numbers = [n for n in range(total) if data[n // 8] >> (7 - n % 8) & 1]
    else:
        numbers = column(data, count)
    assert len(numbers) == count
    found = []
    for number in numbers:
        coords = []
        rest = number
        for side in reversed(sides):
            coords.append(rest % side)
            rest //= side
        found.append(tuple(b + c for b, c in zip(low, reversed(coords), strict=True)))
    return found


def manifest(data: bytes, objects: Objects, virtual: Callable[[str, int, int], bytes]) -> dict[tuple[int, ...], Any]:
    """Return, for each cell that is spoken of, the bytes of its chunk or None for deleted."""
    box, count, presence, present, packs, sources, offsets, lengths, locations, inline = body(data, 6)
    pack_count = len(packs) // 12
    urls = [] if locations is None else location_urls(locations)
    source, length = column(sources, count), column(lengths, count)
    chunks: dict[tuple[int, ...], Any] = {}
    offset = end = 0
    for i, (coords, residual) in enumerate(
        zip(cells(box, presence, present, count), column(offsets, count), strict=True)
    ):
        expected = end if i and source[i] == source[i - 1] else 0
        offset = expected + unzigzag(residual)
        end = offset + length[i]
        if source[i] < pack_count:
            pack = objects["chunks/" + id_text(packs[12 * source[i] : 12 * source[i] + 12])]
            chunks[coords] = pack[offset:end]
        elif source[i] < pack_count + len(urls):
            chunks[coords] = virtual(urls[source[i] - pack_count], offset, end)
        elif source[i] == pack_count + len(urls):
            chunks[coords] = inline[offset:end]
        else:
            chunks[coords] = None
        assert chunks[coords] is None or len(chunks[coords]) == length[i]
    return chunks


def location_urls(table: Any) -> list[str]:
    count, prefixes, prefix, suffix_lengths, suffixes, _, _, _ = table
    ends = texts(suffix_lengths, suffixes, count)
    return [prefixes[p] + e.decode() for p, e in zip(column(prefix, count), ends, strict=True)]


class Reader:
    """Reads a repository.

    Parameters
    ----------
    objects
        Everything in it, by key.
    virtual
        Returns a range of the object at a URL.
    """

    def __init__(self, objects: Objects, virtual: Callable[[str, int, int], bytes]) -> None:
        self.objects = objects
        self.virtual = virtual

    def record(self, branch: str, number: int) -> Any:
        found = body(self.objects[f"refs/branch/{name_in_key(branch)}/{number:012d}"], 3)
        assert found[:2] == [branch, number]
        return found

    def tip(self, branch: str) -> int:
        prefix = f"refs/branch/{name_in_key(branch)}/"
        return max(int(key.removeprefix(prefix)) for key in self.objects if key.startswith(prefix))

    def bodies(self, branch: str, last: int) -> dict[int, bytes]:
        """Return the entries of a log up to a record, by reading only the records that it takes."""
        found: dict[int, bytes] = {}
        at = last
        while at >= 0:
            _, _, own, _, previous = self.record(branch, at)
            skip = 64 if at % 8 == 0 else 8
            oldest = max((at - 1) // skip * skip + 1, 0) if at else 0
            assert len(previous) == at - oldest
            found[at] = own
            found.update(enumerate(previous, oldest))
            at = oldest - 1
        return dict(sorted(found.items()))

    def replay(self, branch: str, last: int | None = None, until: bytes | None = None) -> Snapshot:
        """Return a snapshot from the log alone: the last one of a record, or the one of an id."""
        state = Snapshot(b"", None, {})
        for number, encoded in self.bodies(branch, self.tip(branch) if last is None else last).items():
            found, entry, content = msgpack.unpackb(encoded)
            assert found == number
            assert (entry == 0) == (number == 0)
            if entry == 0:
                state = self.birth(content)
            elif entry == 1:
                for transaction in content:
                    self.commit(state, branch, number, transaction)
                    if state.id == until:
                        return state
            else:
                assert entry == 2
                self.rewrite(state, branch, number, content)
        return state

    def birth(self, content: Any) -> Snapshot:
        snapshot, parent, _, origin = content
        if origin is None:
            return Snapshot(snapshot, parent, {})
        branch, number, checkpoint = origin
        state, found = self.checkpoint(checkpoint)
        assert (found, state.id) == ((branch, number), snapshot)
        return state

    def commit(self, state: Snapshot, branch: str, number: int, transaction: Any) -> None:
        state.id, state.parent, _, _, note, log, first = transaction
        attachments = self.record(branch, number)[3][first:]
        if isinstance(note, int):
            note = attachments[note]
        message, metadata = msgpack.unpackb(note)
        assert isinstance(message, str)
        assert metadata is None or isinstance(metadata, dict)
        if isinstance(log, bytes):
            log = body(self.objects["transactions/" + id_text(log)], 7)
        elif isinstance(log, int):
            log = msgpack.unpackb(attachments[log])
        nodes, chunks = log
        shifts: dict[bytes, list[int]] = {}
        moves = [change for change in nodes if change[0] == 3]
        for change in nodes:
            if change[0] == 3:
                self.move(state, moves)
                moves = []
            elif change[0] == 4:
                shifts[change[1]] = self.append(state, change)
            else:
                self.change(state, change)
        for node, layer, told, appended in chunks:
            identifier, data, shift = self.layer(layer, branch, number, first)
            _, low, high, count, *_ = layer
            if appended:
                assert not any(shift)
                assert layer[7] is None
                state.by_id(node).layers.append((identifier, data, tuple(shifts[node])))
                box, found, presence, present, *_ = body(data, 6)
                assert told is None or set(cells((low, high), *told, count)) == set(
                    cells(box, presence, present, found)
                )
                continue
            state.by_id(node).layers.append((identifier, data, shift))
            if told is not None:
                _, data, shift = state.by_id(node).layers[-1]
                assert not any(shift)
                box, found, presence, present, *_ = body(data, 6)
                shift = [a - b for a, b in zip(low, box[0], strict=True)]
                spoken = {
                    tuple(c + s for c, s in zip(x, shift, strict=True)) for x in cells(box, presence, present, found)
                }
                assert spoken == set(cells((low, high), *told, count))

    def change(self, state: Snapshot, change: Any) -> None:
        operation, node, path, kind, documents, more = change
        assert more is None
        key = (path, kind == 2)
        if operation == 0:
            assert key not in state.nodes
            state.nodes[key] = Node(node, path, kind, dict(documents or {}))
            return
        found = state.by_id(node)
        if operation == 1:
            merged = {**found.documents, **documents}
            found.documents = {name: data for name, data in merged.items() if data is not None}
            found.kind = kind
        else:
            assert operation == 2
            del state.nodes[found.path, found.kind == 2]

    def move(self, state: Snapshot, moves: list[Any]) -> None:
        targets = {state.by_id(node).path: (node, target) for _, node, _, _, _, target in moves}
        places: dict[bytes, str] = {}
        for (path, _), node in state.nodes.items():
            parts = path.split("/")
            for end in range(len(parts), 0, -1):
                above = "/".join(parts[:end])
                if above not in targets:
                    continue
                mover, target = targets[above]
                if mover == node.id or (end < len(parts) and state.by_id(mover).kind == 0):
                    places[node.id] = "/".join([target, *parts[end:]])
                    break
        moved = [state.by_id(identifier) for identifier in places]
        for node in moved:
            del state.nodes[node.path, node.kind == 2]
        for node in moved:
            node.path = places[node.id]
            assert (node.path, node.kind == 2) not in state.nodes
            state.nodes[node.path, node.kind == 2] = node

    def append(self, state: Snapshot, change: Any) -> list[int]:
        _, identifier, _, _, _, (axis, start, items, chunk) = change
        node = state.by_id(identifier)
        lengths = set()
        for name in {"zarr.json", ".zarray"} & node.documents.keys():
            document = json.loads(node.documents[name])
            lengths.add(document["shape"][axis])
            document["shape"][axis] += items
            dimensions = len(document["shape"])
            node.documents[name] = json.dumps(document, indent=2).encode()
        (length,) = lengths
        assert length % chunk == 0
        return [(length - start) // chunk if axis == i else 0 for i in range(dimensions)]

    def layer(self, layer: Any, branch: str, number: int, first: int = 0) -> tuple[bytes, bytes, tuple[int, ...]]:
        identifier, low, _, _, _, place, where, shift = layer
        if place == 0:
            data = self.objects["manifests/" + id_text(identifier)]
        elif place == 1:
            data = where
        else:
            at = (branch, number, first + where) if isinstance(where, int) else where
            data = self.record(at[0], at[1])[3][at[2]]
        return identifier, data, tuple(shift or [0] * len(low))

    def rewrite(self, state: Snapshot, branch: str, number: int, content: Any) -> None:
        for node, first, last, count, added in content:
            found = next((n for n in state.nodes.values() if n.id == node), None)
            if found is None:
                continue
            ids = [layer[0] for layer in found.layers]
            start, end = ids.index(first), ids.index(last) + 1
            assert end - start == count
            found.layers[start:end] = [self.layer(layer, branch, number) for layer in added]

    def checkpoint(self, identifier: bytes) -> tuple[Snapshot, tuple[str, int]]:
        """Return a snapshot from a checkpoint, and the record whose it is."""
        data = self.objects["snapshots/" + id_text(identifier)]
        branch, number, snapshot, parent, _, _, table, _ = body(data, 5)
        count, ids, path_lengths, paths, kinds, per_node, names, name, lengths, contents, layer_counts, layers = table
        documents_of = column(per_node, count)
        total = sum(documents_of)
        documents = list(zip([names[n] for n in column(name, total)], texts(lengths, contents, total), strict=True))
        all_layers = self.layers(layers)
        nodes: dict[tuple[str, bool], Node] = {}
        for i, (path, kind, many, layered) in enumerate(
            zip(
                texts(path_lengths, paths, count),
                column(kinds, count),
                documents_of,
                column(layer_counts, count),
                strict=True,
            )
        ):
            node = Node(ids[12 * i : 12 * i + 12], path.decode(), kind, dict(documents[:many]), all_layers[:layered])
            del documents[:many], all_layers[:layered]
            nodes[node.path, kind == 2] = node
        assert not documents
        assert not all_layers
        return Snapshot(snapshot, parent, nodes), (branch, number)

    def layers(self, table: Any) -> list[tuple[bytes, bytes, tuple[int, ...]]]:
        (
            m,
            ids,
            dimensions,
            lows,
            sides,
            counts,
            flags,
            lengths,
            inline,
            branch,
            branches,
            record,
            attachment,
            shifts,
        ) = table
        dims, flag = column(dimensions, m), column(flags, m)
        low, side = column(lows, sum(dims)), column(sides, sum(dims))
        inlined = texts(lengths, inline, sum(f & 3 == 1 for f in flag))
        many = sum(f & 3 == 2 for f in flag)
        attached = list(zip(column(branch, many), column(record, many), column(attachment, many), strict=True))
        shift = column(shifts, sum(d for d, f in zip(dims, flag, strict=True) if f & 8))
        found = []
        for i, (count, f) in enumerate(zip(column(counts, m), flag, strict=True)):
            d, place = dims[i], f & 3
            where: Any = None
            if place == 1:
                where = inlined.pop(0)
            elif place == 2:
                at = attached.pop(0)
                where = [branches[at[0]], at[1], at[2]]
            vector = None
            if f & 8:
                vector = [unzigzag(z) for z in shift[:d]]
                del shift[:d]
            bounds = [low[:d], [a + b for a, b in zip(low[:d], side[:d], strict=True)]]
            del low[:d], side[:d]
            layer = [ids[12 * i : 12 * i + 12], *bounds, count, bool(f & 4), place, where, vector]
            found.append(self.layer(layer, "", -1))
            box, references, *_ = body(found[-1][1], 6)
            assert references == count
            assert [[c + s for c, s in zip(bound, vector or [0] * d, strict=True)] for bound in box] == bounds
        return found

    def chunks(self, node: Node) -> dict[tuple[int, ...], bytes]:
        """Return every chunk of a node."""
        found: dict[tuple[int, ...], Any] = {}
        for _, data, shift in node.layers:
            for coords, chunk in manifest(data, self.objects, self.virtual).items():
                found[tuple(c + s for c, s in zip(coords, shift, strict=True))] = chunk
        return {coords: chunk for coords, chunk in found.items() if chunk is not None}

    def history(self, branch: str, level: int, index: int) -> list[tuple[int, bytes, bytes | None, str]]:
        """Return the rows of a history page: record, snapshot, parent, message."""
        page = body(self.objects[f"history/{name_in_key(branch)}/{level}/{index:012d}"], 8)
        assert page[:3] == [branch, level, index]
        count, numbers, ids, parents, times, lengths, notes, checkpoints = page[3:]
        assert all(time > 0 for time in column(times, count))
        for number, identifier in checkpoints:
            assert self.checkpoint(identifier)[1] == (branch, number)
        rows = []
        for i, (number, note) in enumerate(zip(column(numbers, count), texts(lengths, notes, count), strict=True)):
            parent = parents[12 * i : 12 * i + 12]
            rows.append((number, ids[12 * i : 12 * i + 12], parent if any(parent) else None, msgpack.unpackb(note)[0]))
        return rows

    def tag(self, name: str) -> Snapshot:
        found, snapshot, branch, number, checkpoint, _ = body(self.objects[f"refs/tag/{name_in_key(name)}"], 4)
        state, at = self.checkpoint(checkpoint)
        assert (found, snapshot, at) == (name, state.id, (branch, number))
        return state

    def hint(self, branch: str) -> tuple[int, bytes]:
        number, checkpoint = body(self.objects[f"hints/{name_in_key(branch)}"], 9)
        assert self.checkpoint(checkpoint)[1] == (branch, number)
        return number, checkpoint
