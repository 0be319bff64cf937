"""What simulated processes do: writers, readers, and those who make branches and tags."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from arraystore.repository import Repository
from arraystore.simulation.actors.reader import read_turn
from arraystore.simulation.actors.referrer import refer_turn
from arraystore.simulation.actors.scene import Scene
from arraystore.simulation.actors.script import Turn
from arraystore.simulation.actors.writer import write_turn

__all__ = ["KINDS", "TakeTurn"]

TakeTurn = Callable[[Scene, str, Repository, str, Turn], Awaitable[None]]
"""What an actor does in one turn: scene, name of the process, repository, name of the actor, turn."""

KINDS: Mapping[str, TakeTurn] = {"writer": write_turn, "reader": read_turn, "referrer": refer_turn}
"""Kinds of actors; a new kind is a line here and a count in `Workload`."""
