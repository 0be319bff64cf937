"""What other processes do in these tests; importable by name, so that they find it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import zarr

from arraystore import ConflictDetector, Repository, Session, Storage
from arraystore.errors import RebaseFailedError

ITEMS = 2
"""Items of an append, and of a chunk."""

CELLS = 1000


def _cell(session: Session) -> zarr.Array:
    return zarr.open_array(session.store, path="cells")


def append_and_write(storage: Storage, who: int, turns: int) -> list[str]:
    """Append to two arrays and write a cell of one's own, in one commit each turn; returns the snapshots."""
    repository = Repository.open(storage)
    done = []
    for turn in range(turns):
        session = repository.writable_session("main")
        data = (who * 1000 + turn) * 10 + np.arange(ITEMS)
        session.append({"time": data, "t": np.repeat(data[:, None], 3, axis=1)}, "time", unique="time")
        _cell(session)[who * 100 + turn] = turn
        done.append(session.commit(f"{who}/{turn}", rebase_with=ConflictDetector()))
    repository.wait_for_maintenance()
    return done


def count_up(storage: Storage, turns: int) -> list[str]:
    """Read a number and write it back increased, from the start again whenever somebody else was faster."""
    repository = Repository.open(storage)
    done: list[str] = []
    while len(done) < turns:
        session = repository.writable_session("main")
        cells = _cell(session)
        cells[0] = max(0, int(cells[0])) + 1  # type: ignore[arg-type]
        try:
            done.append(session.commit("count", rebase_with=ConflictDetector()))
        except RebaseFailedError:
            continue
    repository.wait_for_maintenance()
    return done


def transfer_rows(storage: Storage, who: int, threads: int, turns: int) -> list[str]:
    """Let several threads of one repository commit cells of their own."""
    repository = Repository.open(storage)

    def work(thread: int) -> list[str]:
        found = []
        for turn in range(turns):
            session = repository.writable_session("main")
            place = thread * turns + turn
            _cell(session)[who * threads * turns + place] = place
            found.append(session.commit(f"{who}/{thread}/{turn}", rebase_with=ConflictDetector()))
        return found

    with ThreadPoolExecutor(threads) as pool:
        done = [snapshot for result in pool.map(work, range(threads)) for snapshot in result]
    repository.wait_for_maintenance()
    return done
