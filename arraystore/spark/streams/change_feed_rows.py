"""Changes of commits as Arrow batches: a row for each chunk, node and file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from arraystore._format.ids import NodeId, SnapshotId
from arraystore._format.node import Documents, Node, NodeKind
from arraystore._format.reserved_keys import is_hidden
from arraystore._format.types import Int64s
from arraystore._format.zarr_metadata import array_info
from arraystore._history.compare import Comparison, compare
from arraystore._log.state import SnapshotState, empty_state
from arraystore._repository.repository import Repository
from arraystore._runtime import run
from arraystore.spark.streams.change_feed_history import HistoryStep

FEED_SCHEMA = (
    "snapshot_id string, parent_id string, sequence bigint, committed_at timestamp, message string, path string, "
    "change string, chunk array<bigint>, region_start array<bigint>, region_stop array<bigint>, old_path string"
)
"""Columns of a change feed, for Spark."""

_INDICES = pa.list_(pa.field("element", pa.int64()))
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<bigint>": _INDICES,
}
ARROW_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, FEED_SCHEMA.split(", "))])
"""The same, for Arrow."""

_ROWS = 65_536
"""Most rows of a batch."""

_NAMES = {NodeKind.ARRAY: "array", NodeKind.GROUP: "group", NodeKind.FILE: "file"}


@dataclass(frozen=True)
class _Rows:
    """Rows of one node and one kind of change."""

    path: str
    """Path of the node, with a leading slash."""
    change: str
    """Kind of the change."""
    chunk: Int64s | None = None
    start: Int64s | None = None
    stop: Int64s | None = None
    """Coordinates and regions, shape (n, d); None for a single row without them."""
    old_path: str | None = None
    """Earlier path of a moved node."""

    def __len__(self) -> int:
        return 1 if self.start is None else len(self.start)

    def part(self, first: int, last: int) -> _Rows:
        """Return some of the rows."""
        if first == 0 and last >= len(self):
            return self
        chunk, start, stop = (
            None if each is None else each[first:last] for each in (self.chunk, self.start, self.stop)
        )
        return _Rows(self.path, self.change, chunk, start, stop, self.old_path)


def batches_of(repo: Repository, steps: Sequence[HistoryStep], paths: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """Compare neighbouring snapshots, each with the one before it, and yield the changes."""
    wanted = None if paths is None else [path.strip("/") for path in paths]
    before: SnapshotState | None = None
    for step in steps:
        if before is None or step.parent is None:
            before = _state(repo, step.parent)
        after = _state(repo, step.snapshot)
        comparison = run(compare(before, after, repo.context.manifests, repo.context.log))
        yield from _batches(step, _visible_rows(comparison, before, wanted))
        before = after


def _state(repo: Repository, snapshot: str | None) -> SnapshotState:
    if snapshot is None:
        return empty_state("", 0, SnapshotId(b""), None, 0, b"")
    return repo.readonly_session(snapshot_id=snapshot).base_tip.state


def _visible_rows(comparison: Comparison, before: SnapshotState, wanted: Sequence[str] | None) -> Iterator[_Rows]:
    """Yield the changes of visible nodes at the wanted paths."""
    created = {node.id for node in comparison.created}
    for rows in _all_rows(comparison, before, created):
        path, old = rows.path[1:], (rows.old_path or rows.path)[1:]
        if not is_hidden(path) and (wanted is None or any(_below(each, w) for each in (path, old) for w in wanted)):
            yield rows


def _below(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(above + "/")


def _all_rows(comparison: Comparison, before: SnapshotState, created: set[NodeId]) -> Iterator[_Rows]:
    for node in comparison.deleted:
        yield _Rows("/" + node.path, f"deleted_{_NAMES[node.kind]}")
    for move in comparison.moved:
        yield _Rows("/" + move.after, "moved", old_path="/" + move.before)
    for node in comparison.created:
        yield _whole_node(node, f"created_{_NAMES[node.kind]}")
    for node in comparison.updated:
        yield from _rows_of_update(node, before.nodes[before.keys[node.id]].documents)
    for node, coords in comparison.chunks:
        if node.kind == NodeKind.FILE:
            if node.id not in created:
                yield _Rows("/" + node.path, "updated_file")
            continue
        start, stop = regions_of(node.documents, coords)
        yield _Rows("/" + node.path, "chunk", coords, start, stop)


def _whole_node(node: Node, change: str) -> _Rows:
    """Return a row about a whole node; the region of an array is its shape."""
    if node.kind != NodeKind.ARRAY:
        return _Rows("/" + node.path, change)
    shape = np.array([array_info(node.documents).shape], dtype=np.int64)
    return _Rows("/" + node.path, change, None, np.zeros_like(shape), shape)


def _rows_of_update(node: Node, was: Documents) -> Iterator[_Rows]:
    resized = node.kind == NodeKind.ARRAY and array_info(node.documents).shape != array_info(was).shape
    if resized:
        yield _whole_node(node, "resized")
    if not resized or _without_shape(node.documents) != _without_shape(was):
        yield _whole_node(node, "updated_metadata")


def _without_shape(documents: Documents) -> dict[str, Any]:
    """Return the documents of an array without its shape."""
    values = {name: json.loads(text) for name, text in documents.items()}
    for value in values.values():
        if isinstance(value, dict):
            value.pop("shape", None)
    return values


# -- geometry -----------------------------------------------------------------------------------------------------


def regions_of(documents: Documents, coords: Int64s) -> tuple[Int64s, Int64s]:
    """Return the starts and stops of chunks in an array, in items, both of shape (n, d).

    Chunks beyond the end of the array, which may have been shrunk, have an empty region.
    """
    shape = np.array(array_info(documents).shape, dtype=np.int64)
    start, stop = np.empty_like(coords), np.empty_like(coords)
    for axis, sides in enumerate(_sides(documents)):
        index = coords[:, axis]
        if isinstance(sides, int):
            start[:, axis], stop[:, axis] = index * sides, (index + 1) * sides
        else:
            start[:, axis], stop[:, axis] = _place_in_runs(sides, index)
    return np.minimum(start, shape), np.minimum(stop, shape)


def _sides(documents: Documents) -> list[int | list[Any]]:
    """Return the side of the chunks along each dimension; runs of them where they differ."""
    sides: list[int | list[Any]]
    if "zarr.json" not in documents:
        sides = json.loads(documents[".zarray"])["chunks"]
    else:
        grid = json.loads(documents["zarr.json"])["chunk_grid"]
        sides = grid["configuration"]["chunk_shape" if grid["name"] == "regular" else "chunk_shapes"]
    return sides


def _place_in_runs(runs: Sequence[Any], index: Int64s) -> tuple[Int64s, Int64s]:
    """Return starts and stops of chunks along a dimension whose runs are sides, or pairs of a side and a count."""
    sides, counts = np.array([run if isinstance(run, list) else [run, 1] for run in runs], dtype=np.int64).T
    first = np.concatenate(([0], np.cumsum(counts)))
    edge = np.concatenate(([0], np.cumsum(sides * counts)))
    at = np.minimum(np.searchsorted(first, index, side="right") - 1, len(sides) - 1)
    start = edge[at] + (index - first[at]) * sides[at]
    return start, start + sides[at]


# -- Arrow --------------------------------------------------------------------------------------------------------


def _batches(step: HistoryStep, changes: Iterator[_Rows]) -> Iterator[pa.RecordBatch]:
    parts: list[_Rows] = []
    count = 0
    for rows in changes:
        first = 0
        while first < len(rows):
            parts.append(rows.part(first, first + _ROWS - count))
            first, count = first + len(parts[-1]), count + len(parts[-1])
            if count == _ROWS:
                yield _batch(step, parts)
                parts, count = [], 0
    if parts:
        yield _batch(step, parts)


def _batch(step: HistoryStep, parts: Sequence[_Rows]) -> pa.RecordBatch:
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    same: list[Any] = [step.snapshot, step.parent, step.sequence, step.time, step.message]
    columns = [
        pa.repeat(pa.scalar(v, f.type), int(lengths.sum())) for v, f in zip(same, list(ARROW_SCHEMA)[:5], strict=True)
    ]
    columns += [_repeated([part.path for part in parts], lengths), _repeated([part.change for part in parts], lengths)]
    columns += [_lists([getattr(part, name) for part in parts], lengths) for name in ("chunk", "start", "stop")]
    columns.append(_repeated([part.old_path for part in parts], lengths))
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _repeated(values: Sequence[str | None], lengths: Int64s) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(np.repeat(np.arange(len(values)), lengths)))


def _lists(parts: Sequence[Int64s | None], lengths: Int64s) -> pa.Array:
    """Return a column of lists, null for the rows of parts without values."""
    widths = np.array([0 if part is None else part.shape[1] for part in parts], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(np.repeat(widths, lengths)))).astype(np.int32)
    values = [part.reshape(-1) for part in parts if part is not None]
    flat = np.concatenate(values) if values else np.empty(0, dtype=np.int64)
    missing = np.repeat(np.array([part is None for part in parts]), lengths)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(flat), type=_INDICES, mask=pa.array(missing) if missing.any() else None
    )
