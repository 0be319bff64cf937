"""The commands together: whatever goes wrong in one of them ends here."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from arraystore.cli.failures import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, tell, tell_usage

__all__ = ["Commands"]


class Commands(TyperGroup):
    """Commands of which every end is an exit code, and no end a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show all commands where none is named, as wrong usage: on the standard error stream."""
        if not args and not ctx.resilient_parsing:
            with contextlib.redirect_stdout(sys.stderr):
                print(ctx.get_help())
            raise typer.Exit(EXIT_USAGE)
        return super().parse_args(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and end the process with an exit code."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_output()
            sys.exit(EXIT_ERROR)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        except typer.Abort:
            code = EXIT_INTERRUPTED
        except Exception as error:  # noqa: BLE001 - told, with an exit code: nobody above here is left to do it
            code = _end(error)
        if code == EXIT_INTERRUPTED:
            if sys.stderr.isatty():
                print(file=sys.stderr)  # below a question or a bar
            print("interrupted; commits are whole or not at all, and the command can be run again", file=sys.stderr)
        sys.exit(code if isinstance(code, int) else 0)


def _end(error: Exception) -> int:
    # typer uses click, or brings one of its own: what its errors have in common is what they can do.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return tell_usage(error)
    return tell(error)


def _forget_output() -> None:
    """Let the interpreter end quietly though nobody reads what it still had to say (``arraystore log … | head``)."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
