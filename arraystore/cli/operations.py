"""What was done to a repository: ``ops``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from arraystore.cli.console import literal, make_console, stream_json, time_text
from arraystore.cli.opening import open_repository
from arraystore.cli.options import Json, Limit, Url

if TYPE_CHECKING:
    from rich.text import Text

    from arraystore._history.operations_log import Update

__all__ = ["ops"]

_NO_TIME = "-"


def ops(url: Url, limit: Limit = None, as_json: Json = False) -> None:
    """Show what was done to the repository, newest first: commits, branches, tags, settings, expiry, collections.

    It reaches back as far as the logs do: records of snapshots that have expired are deleted after a while.
    """
    updates = itertools.islice(open_repository(url).ops_log(), limit)
    if as_json:
        stream_json(updates)
        return
    console = make_console()
    console.print(literal(f"{'when (UTC)':<19}  {'what':<18}  details", "bold dim"), soft_wrap=True)
    for update in updates:
        console.print(_line(update), soft_wrap=True)


def _line(update: Update) -> Text:
    when = _NO_TIME if update.updated_at is None else time_text(update.updated_at)
    details = {"branch": update.branch, **update.details} if update.branch else update.details
    told = ", ".join(f"{name}: {' '.join(str(value).split())}" for name, value in details.items())
    return literal(f"{when:<19}  ", "dim") + literal(f"{update.kind.value:<18}  ", "cyan") + literal(told)
