"""What ten thousand tasks have changed is merged within bounds of memory, and is what each of them wrote."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import zarr

from arraystore import ForkSession, Repository, RepositoryConfig, Session, in_memory_storage
from arraystore._context.context import Context
from arraystore._forks.payload_table import PayloadTable, gather_payloads
from arraystore._format.box import Box
from arraystore._format.fork_payload import Part, decode_changes, encode_changes
from arraystore._session.change_set_transfer import MOST_INLINE, is_spilled, send_change_set
from arraystore.spark.fork_job import Outcome, merge_outcomes

TASKS, CHUNKS, CELLS = 10_000, 1000, 4
"""Tasks, chunks that each writes, and cells of a chunk."""
MOST_BYTES = 1_000_000_000
_SHIFTS = 7
_EVERY = 100
"""Each hundredth task spills its change set."""


@dataclass
class _Forged:
    """As much of a fork as delivers changes."""

    payload: bytes
    context: Context

    async def changes_async(self) -> bytes:
        return self.payload


def _written() -> tuple[Repository, Session, bytes]:
    """Make an array, and let one fork write the numbers of chunks from its start on."""
    repo = Repository.create(in_memory_storage(), config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repo.writable_session("main")
    shape = (TASKS * CHUNKS * CELLS,)
    zarr.create_array(session.store, name="a", shape=shape, chunks=(CELLS,), dtype="i4", compressors=None)
    fork = session.fork()
    values = np.repeat(np.arange(1, CHUNKS + _SHIFTS), CELLS)
    zarr.open_array(fork.store, path="a", mode="r+")[: len(values)] = values
    return repo, session, fork.changes()


def _outcomes(session: Session, changes: bytes) -> Iterator[Outcome]:
    """What tasks return that write numbers from 1 + task % 7 on, each into chunks of its own."""
    payload = decode_changes("changes", changes)
    written = gather_payloads([payload])
    for task in range(TASKS):
        low, shift = task * CHUNKS, task % _SHIFTS
        fork = replace(written.forks[0], fork=session.context.environment.new_id())
        part = Part(0, 0, Box((low,), (low + CHUNKS,)), None)
        references = written.references.take(np.arange(shift, shift + CHUNKS))
        data = encode_changes(PayloadTable((fork,), written.arrays, (part,), references).payload(payload.session))
        forged = cast(ForkSession, cast(Any, _Forged(data, session.context)))
        yield Outcome(task, 0, send_change_set(forged, 0 if task % _EVERY == 0 else MOST_INLINE), {})


@contextmanager
def _most_memory() -> Iterator[list[int]]:
    """Note the most bytes that were allocated at a time."""
    found: list[int] = []
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_the_change_sets_of_ten_thousand_tasks_are_merged_within_bounds_of_memory() -> None:
    repo, session, changes = _written()
    outcomes = list(_outcomes(session, changes))
    assert sum(is_spilled(outcome.change_set) for outcome in outcomes) == TASKS // _EVERY
    with _most_memory() as most:
        merge_outcomes(session, outcomes)
    assert most[0] <= MOST_BYTES
    snapshot = session.commit("ten thousand tasks")
    assert repo.lookup_branch("main") == snapshot
    report = repo.verify()
    assert report.ok
    assert report.counts["references"] == TASKS * CHUNKS
    array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    for task in (0, 1, _EVERY - 1, _EVERY, TASKS // 2 + 3, TASKS - 2, TASKS - 1):
        first = task * CHUNKS * CELLS
        expected = np.repeat(np.arange(CHUNKS) + 1 + task % _SHIFTS, CELLS)
        np.testing.assert_array_equal(np.asarray(array[first : first + CHUNKS * CELLS]), expected)
