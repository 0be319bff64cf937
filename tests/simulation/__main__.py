"""The command line of the simulator: ``python -m tests.simulation --help``."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.exploration import configurations
from tests.simulation.mutations import hunt
from tests.simulation.runs import commands

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    choices = parser.add_subparsers(required=True, metavar="command")
    for module in (commands, configurations, hunt):  # each adds its own commands
        module.add_commands(choices)
    chosen = parser.parse_args(arguments)
    return int(chosen.do(chosen))


if __name__ == "__main__":
    sys.exit(main())
