"""Group of commands, which handles their errors."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from arraystore.cli.failures import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, print_error, print_usage_error
from arraystore.cli.repository_argument import RepositoryCommand


class Commands(TyperGroup):
    """Group of commands that ends with an exit status, never with a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; without any, print the help on standard error as invalid usage."""
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
        """Run a command and exit with its status."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            sys.exit(EXIT_ERROR)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        except typer.Abort:
            code = EXIT_INTERRUPTED
        except Exception as error:  # noqa: BLE001 - printed, with an exit status
            code = _print_error(error)
        if code == EXIT_INTERRUPTED:
            if sys.stderr.isatty():
                print(file=sys.stderr)  # below a prompt or progress bar
            print("interrupted; commits are atomic, and the command can be run again", file=sys.stderr)
        sys.exit(code if isinstance(code, int) else 0)


class CommandGroup(typer.Typer):
    """Group of commands, each on a repository."""

    def __init__(self, help: str, **options: Any) -> None:  # noqa: A002 - as Typer calls it
        super().__init__(cls=Commands, help=help, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Add a command, which may take its repository from an option or the environment."""
        return super().command(name, **{"cls": RepositoryCommand, **options})


def _print_error(error: Exception) -> int:
    # typer uses click or a vendored copy, so its errors are recognised by their attributes.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return print_usage_error(error)
    return print_error(error)


def _discard_output() -> None:
    """Discard further output to a closed pipe (``arraystore log … | head``)."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
