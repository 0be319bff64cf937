"""Readers of chunks on the workers of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from arraystore._chunks.reader import ChunkReader
from arraystore._runtime.engine import Engine


class HasReader(Protocol):
    """Picklable holder of a reader of chunks."""

    @property
    def reader(self) -> ChunkReader:
        """The reader."""
        ...


@dataclass(frozen=True)
class RemoteReaders:
    """An engine, and the reader that its workers unpickle."""

    engine: Engine
    """The engine."""
    source: HasReader
    """Holder of the reader."""
