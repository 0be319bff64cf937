"""Entry point of the command, usable without its optional dependencies."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from arraystore._runtime.extras import how_to_install

_EXTRA = ("click", "rich", "typer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments`, by default those of the process, and return the exit status."""
    try:
        from arraystore.cli.app import command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        print(f"error: {how_to_install('the command line', 'cli', error.name)}", file=sys.stderr)
        return 1
    try:
        command().main(args=arguments, prog_name="arraystore")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0
