"""Where the command starts, even where what it is made of is not installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

_EXTRA = ("click", "rich", "typer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments
        In place of those that the process was started with.

    Returns
    -------
    int
        0; 1 after an error, which stands on the standard error stream, or where ``verify`` has found damage; 2 for
        wrong usage; 130 if interrupted.
    """
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
