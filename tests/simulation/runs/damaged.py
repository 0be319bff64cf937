"""Buckets that are damaged for a while: what readers and writers make of what should not be there, or is missing.

Each actor opens what it needs, has something lost or put in the place of something else, does one thing, and restores
the bucket.  Whoever notices the damage ends in a typed error; whoever does not has seen, or was told, what the bucket
does not bear out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arraystore._commit.solvers import ConflictDetector
from arraystore._format.refs import Hint, encode_hint, hint_key
from arraystore._format.snapshot import checkpoint_key
from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import ArrayStoreError
from arraystore.simulation.bucket import Bucket
from arraystore.simulation.world import Process
from tests.seams import context_of
from tests.simulation.actors.hand import Hand
from tests.simulation.checker import check
from tests.simulation.exploration.choices import Actor, Configuration, Execution
from tests.simulation.observations import Committed, Refused, TipLook
from tests.simulation.runs.scenarios import DETECTOR, Step, founder, opened, write

__all__ = ["damaged"]


def _check(error: str | None) -> Callable[[Execution], Sequence[str]]:
    """Return a check by the rules, once the bucket is restored, and of the error in which whoever met damage ended.

    The trace does not know of damage and repair, so it is not checked.
    """

    def problems(run: Execution) -> Sequence[str]:
        found = [*map(str, check(run.world.bucket.objects, run.notes))]
        ended = [name for name in run.results.values() if name != error]
        return [*found, *(f"it ended in {name!r}, and had to end in {error}" for name in ended)]

    return problems


def _records(bucket: Bucket) -> list[str]:
    """Return the keys of the records of the first branch, the oldest first."""
    return [key for key in bucket.keys("refs/") if f"/branch/{MAIN}/" in key]


def _emptied(bucket: Bucket) -> dict[str, bytes]:
    """Delete everything; returns it."""
    found = dict(bucket.objects)
    bucket.delete(list(found))
    return found


def _restore(bucket: Bucket, objects: dict[str, bytes]) -> None:
    _emptied(bucket)
    for key, data in objects.items():
        bucket.put(key, data)


async def _look(process: Process, run: Execution) -> str | None:
    """Look at the tip, and note what was seen; returns the name of the error that came instead."""
    began = float(run.steps)
    try:
        repository = await Repository.open_async(process.storage)
        began = float(run.steps)
        session = await repository.readonly_session_async(MAIN)
    except ArrayStoreError as error:
        return type(error).__name__
    run.notes.see(TipLook(process.name, MAIN, session.snapshot_id, began, float(run.steps)))
    return None


async def _settle(hand: Hand) -> str | None:
    """Commit; returns the name of the error if that was refused."""
    attempt = hand.noted.attempt(DETECTOR, hand.scene.clock())
    try:
        snapshot = await hand.session.commit_async(hand.noted.label, rebase_with=ConflictDetector())
    except ArrayStoreError as error:
        attempt.end(hand.scene.clock(), Refused(type(error).__name__))
        return type(error).__name__
    attempt.end(hand.scene.clock(), Committed(snapshot))
    return None


async def _record_lost(process: Process, run: Execution) -> str | None:
    """Look at a log whose record before the last is lost, where single records are asked for."""
    process.storage.cheap_probes = True
    await run.line()
    bucket = run.world.bucket
    key = _records(bucket)[-2]
    data = bucket.get(key)
    bucket.delete([key])
    found = await _look(process, run)
    bucket.put(key, data)
    return found


def _hole(step: Step, others: Sequence[Step]) -> Actor:
    """Return an actor that commits where a record that others wrote meanwhile is lost."""

    async def act(process: Process, run: Execution) -> str | None:
        process.storage.cheap_probes = True
        hand = await opened(process, run, await process.repository(), "late")
        await step(hand)
        first = len(_records(run.world.bucket))
        for number, other in enumerate(others):
            another = await opened(process, run, await process.repository(), f"meanwhile {number}")
            await other(another)
            await _settle(another)
        key = _records(run.world.bucket)[first]
        data = run.world.bucket.get(key)
        run.world.bucket.delete([key])
        await run.line()
        found = await _settle(hand)
        run.world.bucket.put(key, data)
        return found

    return act


def _replaced(step: Step) -> Actor:
    """Return an actor that commits where its repository was deleted, and another one created."""

    async def act(process: Process, run: Execution) -> str | None:
        process.storage.cheap_probes = True
        hand = await opened(process, run, await process.repository(), "late")
        await step(hand)
        objects = _emptied(run.world.bucket)
        await process.repository()
        await run.line()
        found = await _settle(hand)
        _restore(run.world.bucket, objects)
        return found

    return act


async def _hint_of_another(process: Process, run: Execution) -> str | None:
    """Look at a repository in whose place there was another one, of which a hint and its checkpoint are left."""
    bucket = run.world.bucket
    objects = _emptied(bucket)
    other = await process.repository()
    await other.create_tag_async("old", await other.lookup_branch_async(MAIN))
    context = context_of(other)
    tag = (await context.repository_log.table()).tags["old"]
    hint = Hint(tag.origin.sequence, tag.origin.checkpoint, 0, context.repository)
    checkpoint = checkpoint_key(tag.origin.checkpoint)
    left = {checkpoint: bucket.get(checkpoint), hint_key(MAIN): encode_hint(hint)}
    _restore(bucket, {**objects, **left})
    await run.line()
    found = await _look(process, run)
    _restore(bucket, objects)
    return found


def damaged() -> list[Configuration]:
    """Return the configurations, each of one process."""
    chunk = write("x", 1)
    return [
        _configuration("record lost", "under a reader", "LogHoleError", _record_lost),
        _configuration("hole", "under a writer", "LogHoleError", _hole(chunk, [write("x", 2), write("x", 3)])),
        _configuration("replaced", "by another repository, under a writer", "RepositoryGoneError", _replaced(chunk)),
        _configuration("hint of another", "repository, under a reader", None, _hint_of_another),
    ]


def _configuration(name: str, about: str, error: str | None, actor: Actor) -> Configuration:
    return Configuration(name, (actor,), _check(error), founder(3), about=about)
