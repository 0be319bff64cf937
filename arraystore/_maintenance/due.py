"""Times at which maintenance is due: known to every session, while the maintenance itself is rarely needed."""

from __future__ import annotations

from datetime import timedelta

from arraystore._format.record import LONG_SKIP
from arraystore._log.loading import Tip

MOST_DETACHED = 8
"""Change logs outside of bodies that a reader may fetch, one request each, before any writer makes a checkpoint.

The writer of such a log makes a checkpoint at once; if this many accumulate, that has probably failed.
"""

RECORD_GRACE = timedelta(hours=1)
"""Time for which records of expired snapshots are retained, by default; see `trimmed_records`."""

_OVERDUE = 8
"""Records after which the checkpoint due from another writer counts as missing."""


def checkpoint_due(tip: Tip) -> bool:
    """Tell whether the writer of a record makes the checkpoint of the last multiple of 64.

    The writer of that multiple does; others only when it seems not to have.
    """
    checkpoint = tip.state.checkpoint
    target = last_multiple(tip)
    missing = target > 0 and (checkpoint is None or checkpoint.sequence < target)
    return missing and (tip.sequence == target or tip.sequence >= target + _OVERDUE)


def last_multiple(tip: Tip) -> int:
    """Return the number of the newest record, up to a tip, that a checkpoint is due at."""
    return tip.sequence // LONG_SKIP * LONG_SKIP
