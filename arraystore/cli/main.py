"""Entry point of the command, usable without its optional dependencies."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_EXTRA = ("click", "rich", "typer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments`, by default those of the process, and return the exit status."""
    try:
        from arraystore.cli.app import command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        print(
            f"error: the command line needs the package {error.name!r}: pip install 'arraystore[cli]'", file=sys.stderr
        )
        return 1
    try:
        command().main(args=arguments, prog_name="arraystore")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0
