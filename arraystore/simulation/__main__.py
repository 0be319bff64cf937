"""The command line of the simulator: ``python -m arraystore.simulation --help``."""

from __future__ import annotations

import argparse
import sys

from arraystore.simulation import commands, configurations
from arraystore.simulation.mutations import hunt

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser("python -m arraystore.simulation", description=__doc__)
    choices = parser.add_subparsers(required=True, metavar="command")
    for module in (commands, configurations, hunt):  # each adds its own commands
        module.add_commands(choices)
    chosen = parser.parse_args(arguments)
    return int(chosen.do(chosen))


if __name__ == "__main__":
    sys.exit(main())
