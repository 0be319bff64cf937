"""Statistics of the chunks that a session has written, until they are stored beside its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore._format.chunk_statistics import VALUE_TYPES, ChunkStatistics
from arraystore._format.ids import PackId
from arraystore._format.types import Int64s

_ROW = np.dtype([
    ("source", "i8"), ("offset", "i8"), ("length", "i8"), ("encoding", "i8"), ("least", "i8"), ("greatest", "i8"),
    ("nans", "i8"), ("fills", "i8"), ("valued", "?"),
])  # fmt: skip
"""Least and greatest values as the bytes of their type."""

_NONE = -1
"""In place of an encoding: the bytes of the chunk were replaced, and nothing is known of the new ones."""

_BLOCKS = 256
"""Blocks from which on they are joined."""


@dataclass(frozen=True, eq=False)
class StatisticsRows:
    """Statistics of some chunks, wherever they are; the columns are those of `ChunkStatistics`."""

    encoding: bytes
    kind: str
    least: npt.NDArray[Any]
    greatest: npt.NDArray[Any]
    nans: Int64s
    fills: Int64s
    valued: npt.NDArray[np.bool_]

    def take(self, at: Any) -> StatisticsRows:
        """Return only some rows."""
        bounds = self.least[at], self.greatest[at]
        return StatisticsRows(self.encoding, self.kind, *bounds, self.nans[at], self.fills[at], self.valued[at])


class StatisticsLog:
    """Statistics in the order in which chunks were written: of one place in a pack the last ones count."""

    def __init__(self) -> None:
        self._encodings: list[tuple[bytes, str]] = []
        self._blocks: list[npt.NDArray[Any]] = []
        self._loose = 0
        """Rows since the blocks were last joined: as many again are joined at once, so that each is moved few times."""
        self._foreign: list[ChunkStatistics] = []

    def __bool__(self) -> bool:
        return bool(self._blocks or self._foreign)

    def add(self, entries: Int64s, rows: StatisticsRows) -> None:
        """Add rows of chunks, whose source, offset and length are the columns of `entries`."""
        block = np.zeros(len(entries), dtype=_ROW)
        for at, name in enumerate(("source", "offset", "length")):
            block[name] = entries[:, at]
        block["encoding"] = self._number((rows.encoding, rows.kind))
        block["least"], block["greatest"] = rows.least.view(np.int64), rows.greatest.view(np.int64)
        block["nans"], block["fills"], block["valued"] = rows.nans, rows.fills, rows.valued
        self._append(block)

    def replace(self, source: int, offset: int, length: int, rows: StatisticsRows | None) -> None:
        """Put the row of a chunk whose bytes were overwritten, or none, in the place of that of the bytes before."""
        if rows is not None:
            self.add(np.array([(source, offset, length)], dtype=np.int64), rows)
        elif self._blocks:
            self._append(np.array([(source, offset, length, _NONE, 0, 0, 0, 0, False)], dtype=_ROW))

    def adopt(self, tables: Sequence[ChunkStatistics]) -> None:
        """Add statistics of chunks in packs that are complete, and are never overwritten."""
        self._foreign += tables

    def tables(self, packs: Sequence[PackId]) -> list[ChunkStatistics]:
        """Return a table for each encoding, given the ids of the packs by number, and the adopted ones."""
        if not self._blocks:
            return list(self._foreign)
        self._join()
        (rows,) = self._blocks
        own = [self._table(number, rows[rows["encoding"] == number], packs) for number in range(len(self._encodings))]
        return [*self._foreign, *(table for table in own if len(table))]

    def _table(self, number: int, rows: npt.NDArray[Any], packs: Sequence[PackId]) -> ChunkStatistics:
        encoding, kind = self._encodings[number]
        used, source = np.unique(rows["source"], return_inverse=True)
        columns = [np.ascontiguousarray(rows[name]) for name in ("offset", "length", "least", "greatest")]
        offset, length, least, greatest = columns
        bounds = (least.view(VALUE_TYPES[kind]), greatest.view(VALUE_TYPES[kind]))
        ids = tuple([packs[at] for at in used.tolist()])
        counts = (rows["nans"].copy(), rows["fills"].copy(), rows["valued"].copy())
        return ChunkStatistics(encoding, kind, ids, source.astype(np.int64), offset, length, *bounds, *counts)

    def _number(self, encoding: tuple[bytes, str]) -> int:
        if encoding not in self._encodings:
            self._encodings.append(encoding)
        return self._encodings.index(encoding)

    def _append(self, block: npt.NDArray[Any]) -> None:
        self._blocks.append(block)
        self._loose += len(block)
        if len(self._blocks) > _BLOCKS and self._loose > len(self._blocks[0]):
            self._join()

    def _join(self) -> None:
        """Join the blocks, with the last row of each place."""
        rows = np.concatenate(self._blocks)
        order = np.lexsort((rows["offset"], rows["source"]))
        ordered = rows[order]
        last = np.ones(len(rows), dtype=np.bool_)
        last[:-1] = (ordered["source"][1:] != ordered["source"][:-1]) | (
            ordered["offset"][1:] != ordered["offset"][:-1]
        )
        self._blocks = [ordered[last]]
        self._loose = 0
