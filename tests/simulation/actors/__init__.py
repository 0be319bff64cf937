"""What simulated processes do: writers, readers, those who make and delete branches and tags, those who clean up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from arraystore._repository.repository import Repository
from tests.simulation.actors.operator import operate_turn
from tests.simulation.actors.reader import read_turn
from tests.simulation.actors.referrer import refer_turn
from tests.simulation.actors.scene import Scene
from tests.simulation.actors.script import Turn
from tests.simulation.actors.sources import overwrite_turn
from tests.simulation.actors.transplanter import transplant_turn
from tests.simulation.actors.upkeep import collect_turn, compact_turn, expire_turn
from tests.simulation.actors.writer import write_turn

__all__ = ["KINDS", "TakeTurn"]

TakeTurn = Callable[[Scene, str, Repository, str, Turn], Awaitable[None]]
"""What an actor does in one turn: scene, name of the process, repository, name of the actor, turn."""

KINDS: Mapping[str, TakeTurn] = {
    "writer": write_turn,
    "reader": read_turn,
    "referrer": refer_turn,
    "operator": operate_turn,
    "expirer": expire_turn,
    "collector": collect_turn,
    "compactor": compact_turn,
    "transplanter": transplant_turn,
    "overwriter": overwrite_turn,
}
"""Kinds of actors; a new kind is a line here and a count in `Workload`."""
