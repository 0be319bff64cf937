"""Random histories: reverting any snapshot is the merge of three that a model works out item by item, or a conflict."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from arraystore import InvalidInputError, RebaseFailedError, Repository
from tests.history.worlds import attributes, both, commit, contents_at, created, deleted, moved, put, world

Cells = dict[tuple[str, Any], Any]

_PUTS = st.tuples(st.just("put"), st.sampled_from(["g/a", "g/b"]), st.integers(0, 5), st.integers(0, 3))
_TITLES = st.tuples(st.just("title"), st.sampled_from(["g", "g/a", "g/b"]), st.integers(0, 1), st.just(0))
_NODES = st.tuples(st.sampled_from(["toggle", "carry"]), st.sampled_from(["c", "g/c"]), st.just(0), st.just(0))
COMMITS = st.lists(st.lists(st.one_of(_PUTS, _PUTS, _TITLES, _NODES), min_size=1, max_size=3), min_size=1, max_size=6)


def change_of(step: tuple[str, str, int, int], there: set[str], fresh: int) -> Any:
    """Return what a step does, given the arrays c and g/c that there are, and a value not used before."""
    kind, path, first, second = step
    if kind == "put":
        return put(path, first, fresh if second else 0)  # the same value again would be another chunk all the same
    if kind == "title":
        return attributes(path, title=first)
    if kind == "toggle":
        there ^= {path}
        return created(path) if path in there else deleted(path)
    other = "g/c" if path == "c" else "c"
    if path not in there or other in there:
        return None
    there ^= {path, other}
    return moved(path, other)


def items(repository: Repository, snapshot_id: str) -> Cells:
    """Return a snapshot as items: the metadata of each node and each chunk, by the identity of the node."""
    session = repository.readonly_session(snapshot_id=snapshot_id)
    found: Cells = {}
    for node in session.base_tip.state.nodes.values():
        found[node.id.hex(), "place"] = (node.path, node.documents)
    for path, values in contents_at(repository, snapshot_id).items():
        identifier = session.base_tip.state.nodes[path].id.hex()
        found |= {(identifier, at): value for at, value in enumerate(values) if value}
    return found


def merged(base: Cells, ours: Cells, tip: Cells) -> Cells | None:
    """Merge three snapshots; None where they collide, or two nodes come to one place."""
    result = dict(tip)
    for key in base.keys() | ours.keys():
        was, want, now = base.get(key), ours.get(key), tip.get(key)
        if want in (was, now):
            continue
        if now != was:
            return None
        if want is None:
            del result[key]
        else:
            result[key] = want
    paths = [value[0] for (_, at), value in result.items() if at == "place"]
    return result if len(set(paths)) == len(paths) else None


def with_twins(base: Cells, ours: Cells, tip: Cells) -> Cells:
    """Return the tip with new nodes in the places of those that it lost taken for these."""
    known = {identifier for identifier, _ in base.keys() | ours.keys()}
    new = {value[0]: identifier for (identifier, at), value in tip.items() if at == "place" and identifier not in known}
    lost = {identifier: (base.get((identifier, "place")) or ours[identifier, "place"])[0] for identifier in known}
    lost = {identifier: path for identifier, path in lost.items() if (identifier, "place") not in tip}
    names = {new[path]: identifier for identifier, path in lost.items() if path in new}
    return {(names.get(identifier, identifier), at): value for (identifier, at), value in tip.items()}


def anonymous(cells: Cells) -> Cells:
    """Return items by path, as nodes that come back are new ones."""
    paths = {identifier: place[0] for (identifier, at), place in cells.items() if at == "place"}
    return {(paths[identifier], at): value for (identifier, at), value in cells.items()}


@pytest.mark.timeout(3000)  # of a long run
@given(COMMITS, st.data())
def test_a_revert_is_the_merge_of_three_or_a_conflict(commits: list[Any], data: st.DataObject) -> None:
    repository = world()
    there: set[str] = set()
    serial = 0
    snapshots = [repository.lookup_branch("main")]
    for steps in commits:
        changes: list[Any] = []
        for step in steps:
            serial += 1
            change = change_of(step, there, 100 + serial)
            changes += [] if change is None else [change]
        session = repository.writable_session("main")
        both(*changes)(session)
        snapshots.append(session.commit("steps", allow_empty=True))
    at = data.draw(st.integers(1, len(snapshots) - 1))
    base, ours, tip = (items(repository, snapshots[number]) for number in (at, at - 1, -1))
    expected = merged(base, ours, with_twins(base, ours, tip))
    try:
        reverted = repository.revert(snapshots[at])
    except RebaseFailedError:
        assert at != len(snapshots) - 1, "the newest snapshot can always be reverted"
        # Chunks of a new node are others, even with equal values.
        assert expected is None or deletes_or_returns(base, ours) or with_twins(base, ours, tip) != tip
        assert repository.lookup_branch("main") == snapshots[-1]
        return
    except InvalidInputError:
        assert expected == with_twins(base, ours, tip)
        return
    assert expected is not None
    assert anonymous(items(repository, reverted)) == anonymous(expected)


def deletes_or_returns(base: Cells, ours: Cells) -> bool:
    """Tell whether whole nodes come or go: then more collides than the same items."""
    return {key for key in base if key[1] == "place"} != {key for key in ours if key[1] == "place"}


def test_the_model_of_a_merge_knows_the_four_cases() -> None:
    assert merged({("n", 0): 1}, {("n", 0): 2}, {("n", 0): 1}) == {("n", 0): 2}
    assert merged({("n", 0): 1}, {("n", 0): 2}, {("n", 0): 2}) == {("n", 0): 2}
    assert merged({("n", 0): 1}, {}, {("n", 0): 1, ("n", 1): 5}) == {("n", 1): 5}
    assert merged({("n", 0): 1}, {("n", 0): 2}, {("n", 0): 3}) is None
    here, there = ("c", {}), ("g/c", {})
    assert (
        merged({("n", "place"): there}, {("n", "place"): here}, {("n", "place"): there, ("m", "place"): here}) is None
    )


def test_a_commit_of_two_steps_is_undone_in_one() -> None:
    repository = world()
    before = repository.lookup_branch("main")
    snapshot = commit(repository, both(put("g/a", 0, 9), created("c"), moved("c", "d")))
    reverted = repository.revert(snapshot)
    assert items(repository, reverted) == items(repository, before)
