"""Links to the page that shows the conflicts of a failed rebase."""

from __future__ import annotations

import base64
import json

from arraystore.errors import RebaseFailedError
from arraystore.ui.views.conflicts import conflict_rows
from arraystore.ui.views.json_value import json_value

__all__ = ["conflict_link"]


def conflict_link(error: RebaseFailedError, page: str = "") -> str:
    """Return the address at which the page shows the conflicts of an error.

    The conflicts travel in the address itself, since a session that failed leaves nothing in the repository.

    Parameters
    ----------
    error
        What a commit or a rebase raised.
    page
        Address that ``arraystore ui`` has printed, or of a report; by default only the part after it is returned.

    Returns
    -------
    str
        The address; of at most 200 conflicts with 400 chunks each.

    Examples
    --------
    >>> from arraystore.errors import RebaseFailedError
    >>> conflict_link(RebaseFailedError("0" * 20, []), "report.html")[:24]
    'report.html#/conflicts?e'
    """
    rows = conflict_rows(error.conflicts)
    facts = {"onto": error.snapshot, "rows": rows, "more": max(0, len(error.conflicts) - len(rows))}
    text = json.dumps(json_value(facts), separators=(",", ":"))
    return f"{page.partition('#')[0]}#/conflicts?error={base64.urlsafe_b64encode(text.encode()).decode()}"
