"""Rule "serializability": serializable transactions could have run one after the other, in the order of the log.

Two checks.  First, each committed serializable transaction is run again on the snapshot before its own: all that it
read of others must be there as it read it.  So it depends on nothing that a commit between its base and its place
overwrote, and the history of these transactions is view equivalent to the serial one in log order (which is what
one-copy serializability asks for: Bernstein, Hadzilacos and Goodman, 1987, chapter 5).

Second, and from the bytes alone: chunks carry bytes that tell who wrote them, so reads name their writers.  The mixed
serialization graph (Adya, 1999, section 5.5.1) has an edge from each writer to the next writer of the chunk, from each
writer to whoever read from it, and from each *serializable* reader to the writer of the next version.  It has no cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from tests.simulation.checker.decoder import Commit
from tests.simulation.checker.decoding import Coords, id_text
from tests.simulation.checker.effects import effects_of
from tests.simulation.checker.logs import Logs
from tests.simulation.checker.meant import Replay
from tests.simulation.checker.model import ModelError, View
from tests.simulation.checker.reads import Read, shown, unexpected
from tests.simulation.checker.states import Snapshot, place_of
from tests.simulation.checker.violations import Violation
from tests.simulation.observations import ListingRead, Observations, Transaction, ValueRead

__all__ = ["dependency_cycles", "stale_reads"]

_RULE = "serializability"


def stale_reads(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Run serializable transactions again at their places in the log."""
    reads: dict[str, list[Read]] = defaultdict(list)
    for read in notes.reads():
        if read.transaction is not None and read.counts:
            reads[read.transaction].append(read)
    for label, own in reads.items():
        transaction = notes.transactions[label]
        if transaction.isolation != "serializable" or any(solver.waives_reads for solver in transaction.solvers):
            continue
        for commit in logs.labelled.get(label, []):
            yield from _again(logs, transaction, own, commit)


def _again(logs: Logs, transaction: Transaction, reads: list[Read], commit: Commit) -> Iterator[Violation]:
    try:
        replay = Replay(logs, transaction, logs.branches[commit.branch].made(commit.id) - 1)
        for position, together in groupby(sorted(reads, key=_position), key=_position):
            replay.to(position)
            if replay.guessed:
                return
            again, _ = effects_of(replay.view).onto(commit.before, forced=False)
            for read in together:
                expected = None if _own(replay.view, read) else unexpected(again.nodes, read)
                if expected is not None:
                    what = f"{shown(read)}, which is {expected} in the snapshot before its own"
                    yield Violation(_RULE, what, transaction.label)
    except ModelError:
        return  # the content tells


def _position(read: Read) -> int:
    return read.position


def _own(view: View, read: Read) -> bool:
    """Tell whether what was read is the transaction's own doing, so that it says nothing about others."""
    return not isinstance(read, ListingRead) and view.is_own(read.key)


Item = tuple[bytes, Coords]


def dependency_cycles(logs: Logs, notes: Observations) -> Iterator[Violation]:
    """Look for cycles in the graph of dependencies of each branch."""
    for branch in logs.branches.values():
        ends = [*[era.place for era in branch.eras[1:]], len(branch.commits)]
        for era, end in zip(branch.eras, ends, strict=True):  # what a reset leaves behind depends on nothing after it
            commits = branch.commits[era.place : end]
            cycle = _cycle(_edges(logs, notes, commits))
            if cycle:
                labels = " -> ".join(commits[at].after.message for at in cycle)
                what = f"transactions depend on each other in a circle: {labels}"
                yield Violation(_RULE, what, f"branch {branch.name!r}")


def _edges(logs: Logs, notes: Observations, commits: Sequence[Commit]) -> dict[int, set[int]]:
    """Return who comes before whom; transactions are numbered as in the log."""
    versions = _versions(commits)
    edges: dict[int, set[int]] = defaultdict(set)
    for written in versions.values():
        for (earlier, _), (later, _) in pairwise(written):
            edges[earlier].add(later)
    numbers = {commit.after.message: at for at, commit in enumerate(commits)}
    for read in notes.reads():
        if isinstance(read, ListingRead) or read.transaction not in numbers or not read.counts:
            continue
        reader = notes.transactions[read.transaction or ""]
        if any(solver.waives_reads for solver in reader.solvers):
            continue
        own, item = numbers[reader.label], _item(logs, read.snapshot, read.key)
        if item is None:
            continue
        written = versions.get(item, [])
        at = _read_version(commits, item, written, read)
        if at is None:
            continue  # its own bytes, or nothing: which of several nothings cannot be told from the bytes
        if written[at][0] != own:
            edges[written[at][0]].add(own)
        if reader.isolation == "serializable" and at + 1 < len(written) and written[at + 1][0] != own:
            edges[own].add(written[at + 1][0])
    return edges


def _read_version(
    commits: Sequence[Commit], item: Item, written: Sequence[tuple[int, bytes | None]], read: ValueRead
) -> int | None:
    """Return which version of a chunk was read, by its bytes alone where these were written once.

    Who undoes something writes again what was there: then it is the newest one up to the snapshot that was read.
    """
    same = [i for i, (_, data) in enumerate(written) if data is not None and data == read.data]
    if not same or (len(same) == 1 and _data(commits[0].before, item) != read.data):
        return next(iter(same), None)
    upto = next((at for at, commit in enumerate(commits) if id_text(commit.after.id) == read.snapshot), -1)
    return max((i for i in same if written[i][0] <= upto), default=None)


def _data(snapshot: Snapshot, item: Item) -> bytes | None:
    node = snapshot.by_id(item[0])
    return None if node is None else node.chunks.get(item[1])


def _versions(commits: Sequence[Commit]) -> dict[Item, list[tuple[int, bytes | None]]]:
    """Return who wrote each chunk, in order, and what."""
    found: dict[Item, list[tuple[int, bytes | None]]] = defaultdict(list)
    for at, commit in enumerate(commits):
        for identifier, coords in commit.touched.chunks.items():
            node = commit.after.by_id(identifier)
            for cell in coords:
                found[identifier, cell].append((at, None if node is None else node.chunks.get(cell)))
    return found


def _item(logs: Logs, snapshot: str, key: str) -> Item | None:
    found = logs.snapshot(snapshot)
    place = None if found is None else place_of(found.nodes, key)
    if place is None or isinstance(place[1], str):
        return None
    return place[0].id, place[1]


def _cycle(edges: dict[int, set[int]]) -> list[int]:
    """Return a cycle, the first member once more at the end; nothing where there is none."""
    if all(start < end for start, ends in edges.items() for end in ends):
        return []  # the order of the log is one in which everything comes before what depends on it
    state: dict[int, int] = {}
    for root in edges:
        path: list[int] = []
        stack = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                state[node] = 2
                path.pop()
            elif state.get(node) == 1:
                return [*path[path.index(node) :], node]
            elif node not in state:
                state[node] = 1
                path.append(node)
                stack.append((node, True))
                stack += [(end, False) for end in edges.get(node, ())]
    return []
