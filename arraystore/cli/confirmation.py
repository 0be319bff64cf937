"""Confirmation of irreversible operations."""

from __future__ import annotations

import sys

from arraystore.cli.console import safe
from arraystore.cli.failures import NotConfirmedError


def on_terminal() -> bool:
    """Return whether a user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_answer() -> str:
    """Read one line from standard input."""
    return sys.stdin.readline()


def confirm(operation: str, *, yes: bool) -> None:
    """Ask for confirmation of an operation, unless `yes`; raises `NotConfirmedError` without it."""
    if yes:
        return
    if not on_terminal():
        raise NotConfirmedError(
            f"refusing to {operation} without confirmation, as there is no terminal: add --yes; nothing was changed"
        )
    print(f"{operation[:1].upper()}{safe(operation[1:])}? [y/N] ", end="", file=sys.stderr, flush=True)
    if read_answer().strip().lower() not in ("y", "yes"):
        raise NotConfirmedError("not confirmed; nothing was changed")
