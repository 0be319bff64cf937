"""Wrong ways to find out, and to decide, whether a transaction is rebased onto others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from arraystore._changes.read_set import ReadSet
from arraystore._commit import conflict_detection
from arraystore._commit.append_adaptation import adapt_node_changes
from arraystore._commit.batch import Batch
from arraystore._commit.solvers import Solution
from arraystore._conflicts import Conflict, VersionSelection
from arraystore._session import rebase
from arraystore._session.hierarchy import Hierarchy
from tests.simulation.actors.workload import Workload
from tests.simulation.mutations.patching import Mutation, everywhere

__all__ = ["MUTATIONS"]


def _nothing(*_: Any, **__: Any) -> None:
    return


def _no_conflicts(*_: Any, **__: Any) -> list[Conflict]:
    return []


def _looking(workload: Workload) -> Workload:
    """Have everybody read chunks, and write others according to what was there."""
    return replace(workload, writers=5, arrays=2, operations={"look": 1.0}, serializable=1.0)


def _unchecked(name: str, kind: str, what: str, profiles: tuple[str, ...], **more: Any) -> Mutation:
    """Return the mutation that leaves one kind of conflicts out."""
    return Mutation(name, what, lambda: [(conflict_detection, kind, _no_conflicts)], profiles, **more)


async def _the_other_way(*arguments: Any) -> list[Solution | None]:
    other = {
        VersionSelection.UseOurs: VersionSelection.UseTheirs,
        VersionSelection.UseTheirs: VersionSelection.UseOurs,
    }
    answers: Iterable[Solution | None] = await _ask(*arguments)
    return [a if a is None or a.selection not in other else Solution(other[a.selection]) for a in answers]


_ask = rebase._ask


MUTATIONS = (
    _unchecked(
        "no check of chunks",
        "_chunks",
        "two may write the same chunk at the same time",
        ("calm", "mixed"),
        explored=("same chunk",),
        runs=(("mixed", 0), ("mixed", 1)),
        breaks="isolation",
    ),
    _unchecked(
        "no check of metadata",
        "_updates",
        "two may change the metadata of a node at the same time",
        ("calm", "mixed"),
        runs=(("calm", 1),),
        breaks="hierarchy",
    ),
    _unchecked(
        "no check of new nodes",
        "_creations",
        "two may create a node at the same path",
        ("hierarchy",),
        explored=("creations",),
        runs=(("hierarchy", 1), ("hierarchy", 12)),
        breaks="liveness",
    ),
    _unchecked(
        "no check of moves",
        "_moves",
        "two may move a node, or to the same path",
        ("hierarchy",),
        explored=("move, creation",),
        runs=(("hierarchy", 9), ("hierarchy", 10)),
        breaks="liveness",
    ),
    _unchecked(
        "no check of deletions",
        "_deletions",
        "what others have changed may be deleted",
        ("hierarchy",),
        explored=("deletion, chunk",),
        runs=(("hierarchy", 6), ("hierarchy", 7)),
        breaks="liveness",
    ),
    Mutation(
        "no check of reads",
        "serializable transactions are committed whatever of what they read has changed",
        lambda: [(ReadSet, "collisions", _no_conflicts)],
        ("calm", "mixed"),
        explored=("write skew",),
        runs=(("mixed", 0), ("mixed", 3)),
        breaks="serializability",
    ),
    Mutation(
        "reads are not noted",
        "chunks that were read are forgotten",
        lambda: [(Hierarchy, "_note_chunk", _nothing)],
        ("calm",),
        tuned=_looking,
        explored=("write skew",),
        runs=(("calm", 0), ("calm", 1)),
        breaks="serializability",
    ),
    Mutation(
        "listings are not noted",
        "what was listed is forgotten, so that new nodes appear unnoticed",
        lambda: [(ReadSet, "listing", _nothing), (ReadSet, "prefix", _nothing)],
        ("hierarchy", "mixed"),
        runs=(("hierarchy", 0), ("hierarchy", 10)),
        breaks="serializability",
    ),
    Mutation(
        "solver ignored",
        "of two versions the one is taken that the solver did not choose",
        lambda: [(rebase, "_ask", _the_other_way)],
        ("calm", "busy"),
        explored=("ours",),
        runs=(("busy", 0), ("busy", 1)),
        breaks="content",
    ),
    Mutation(
        "attributes undo appends",
        "a change of attributes brings back the length that the array had when it was made",
        lambda: everywhere(adapt_node_changes, _nothing),
        ("appends",),
        explored=("append, attribute",),
        runs=(("appends", 1), ("appends", 6)),
        breaks="content",
    ),
    Mutation(
        "members are not checked",
        "transactions that share a record are not checked against each other",
        lambda: [(Batch, "fits", lambda *_: True)],
        ("busy", "mixed"),
        explored=("line, same chunk",),
        runs=(("busy", 0), ("busy", 1)),
        breaks="isolation",
    ),
)
"""Wrong ways to check."""
