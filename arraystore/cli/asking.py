"""Asking before something is done that cannot be taken back."""

from __future__ import annotations

import sys

from arraystore.errors import ArrayStoreError

__all__ = ["NotConfirmedError", "confirm"]


class NotConfirmedError(ArrayStoreError):
    """Nobody said yes."""


def on_terminal() -> bool:
    """Tell whether somebody is there to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def answer_line() -> str:
    """Read what somebody answers."""
    return sys.stdin.readline()


def confirm(what: str, *, yes: bool) -> None:
    """Ask whether to do something, unless the answer was given beforehand.

    Parameters
    ----------
    what
        What will be done, as in "delete branch 'x'".
    yes
        The answer, where it was given.

    Raises
    ------
    NotConfirmedError
        If the answer is no, or if nobody is there to be asked.
    """
    if yes:
        return
    if not on_terminal():
        raise NotConfirmedError(f"not asked whether to {what}, for want of a terminal: add --yes; nothing was changed")
    print(f"{what[:1].upper()}{what[1:]}? [y/N] ", end="", file=sys.stderr, flush=True)
    if answer_line().strip().lower() not in ("y", "yes"):
        raise NotConfirmedError("not confirmed; nothing was changed")
