"""Options that choose where a command reads and writes chunks."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arraystore._runtime.engine import EngineOption

__all__ = ["EngineName", "Master", "On", "open_engine"]


class EngineName(StrEnum):
    """Name of an engine."""

    threads = "threads"
    spark = "spark"


On = Annotated[
    EngineName,
    typer.Option(
        "--engine", help="Where data is read and written: threads of this process, or spark for executors of a cluster."
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark master; implies Spark; local[*] by default.")
]


def open_engine(name: EngineName, master: str | None) -> EngineOption:
    """Return the engine of the options, on a Spark session that is started if none is active."""
    if name is EngineName.threads and master is None:
        return "threads"
    from arraystore.spark import engine, start_session

    return engine(start_session(master))
