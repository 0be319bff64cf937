"""Those who let snapshots expire, collect garbage and compact, while everybody else goes on."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

from arraystore._repository.creation import MAIN
from arraystore._repository.repository import Repository
from arraystore.errors import ArrayStoreError, StorageError
from tests.simulation.actors.losses import REFUSALS
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Turn
from tests.simulation.observations import Committed, Refused, Unknown, Upkeep

__all__ = ["collect_all", "collect_turn", "compact_turn", "expire_turn"]


def _clock(repo: Repository) -> datetime:
    """Return what the process's clock shows."""
    return datetime.fromtimestamp(repo.context.environment.now_us() / 1e6, UTC)


async def collect_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Collect garbage: what is older than now, mostly, or than some seconds; all of it, now and then.

    Parameters
    ----------
    scene
        The run.
    process
        Name of the process.
    repo
        The repository, as the process has opened it.
    actor
        Whose turn it is.
    turn
        What to do.
    """
    rng = scene.random(actor, turn.number)
    cut_off = _clock(repo) - timedelta(seconds=rng.choice((0.0, 0.0, 0.0, 1.0, 5.0)))
    await _collect(scene, process, repo, cut_off, rng.random() < 0.3)


async def _collect(scene: Scene, process: str, repo: Repository, cut_off: datetime, full: bool) -> None:
    noted = Upkeep(process, "collect", scene.clock())
    await _done(scene, noted, repo.garbage_collect_async(cut_off, full=full))


async def collect_all(scene: Scene, process: str, repo: Repository) -> None:
    """Collect everything that can be: nobody is at work any more."""
    await _collect(scene, process, repo, _clock(repo), True)


async def expire_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Let snapshots expire; parameters as of `collect_turn`."""
    rng = scene.random(actor, turn.number)
    older_than = _clock(repo) - timedelta(seconds=rng.choice((0.0, 0.5, 2.0, 5.0)))
    keep_last = rng.choice((None, None, 1, 3))
    micros = int(older_than.timestamp() * 1e6)
    noted = Upkeep(process, "expire", scene.clock(), older_than=micros, keep_last=keep_last or 0)
    expire = repo.expire_snapshots_async(
        older_than,
        keep_last=keep_last,
        delete_expired_branches=rng.random() < 0.1,
        delete_expired_tags=rng.random() < 0.1,
    )
    told = await _done(scene, noted, expire)
    if isinstance(told, set):
        noted.expired = frozenset(told)


async def compact_turn(scene: Scene, process: str, repo: Repository, actor: str, turn: Turn) -> None:
    """Compact a branch; parameters as of `collect_turn`."""
    rng = scene.random(actor, turn.number)
    branch = rng.choice([MAIN, MAIN, *scene.branches])
    noted = Upkeep(process, "compact", scene.clock())
    await _done(scene, noted, repo.compact_async(branch=branch, min_live=rng.choice((0.3, 0.7, 1.0))))


async def _done(scene: Scene, noted: Upkeep, work: Awaitable[object]) -> object:
    """Do something, and note what comes of it; returns what it told."""
    scene.notes.see(noted)
    try:
        told = await work
    except StorageError as error:
        noted.end(scene.clock(), Unknown(type(error).__name__))
        return None
    except REFUSALS as error:
        noted.end(scene.clock(), Refused(type(error).__name__))
        return None
    except ArrayStoreError as error:
        noted.end(scene.clock(), Unknown(type(error).__name__))
        raise
    noted.end(scene.clock(), Committed(""))
    return told
