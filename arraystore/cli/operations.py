"""Operations log of a repository: ``ops``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from arraystore.cli.console import literal, make_console, stream_json, time_text
from arraystore.cli.options import Json, Limit, Url
from arraystore.cli.resolve import open_repository

if TYPE_CHECKING:
    from rich.text import Text

    from arraystore._history.operations_log import Update

__all__ = ["ops"]

_NO_TIME = "-"


def ops(url: Url, limit: Limit = None, as_json: Json = False) -> None:
    """Show the operations log, newest first: commits, branches, tags, settings, expiry, garbage collection.

    It ends where the logs do: records of expired snapshots are deleted eventually.
    """
    updates = itertools.islice(open_repository(url).ops_log(), limit)
    if as_json:
        stream_json(updates)
        return
    console = make_console()
    console.print(literal(f"{'time (UTC)':<19}  {'operation':<18}  details", "bold dim"), soft_wrap=True)
    for update in updates:
        console.print(_line(update), soft_wrap=True)


def _line(update: Update) -> Text:
    when = _NO_TIME if update.updated_at is None else time_text(update.updated_at)
    details = {"branch": update.branch, **update.details} if update.branch else update.details
    text = ", ".join(f"{name}: {' '.join(str(value).split())}" for name, value in details.items())
    return literal(f"{when:<19}  ", "dim") + literal(f"{update.kind.value:<18}  ", "cyan") + literal(text)
