"""The tables of docs/cost.md, made from the prices and figures of the calculator.

    python -m tests.cli.cost_page

writes them anew; a test fails where the page shows something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from arraystore.cli.cost import requests as figures
from arraystore.cli.cost.prices import Prices, known_prices
from arraystore.cli.cost.requests import Requests

PAGE = Path(__file__).parents[2] / "docs" / "cost.md"

OPERATIONS = {
    "open the repository and a session, in a new process": figures.OPEN,
    "the next session of a process": figures.REOPEN,
    "commit, packs apart (the LIST only if the session is older than ten seconds)": figures.COMMIT,
    "each race that a commit loses": figures.LOST_RACE,
    f"every {figures.RECORDS_BETWEEN_UPKEEP} commits, in the background": figures.UPKEEP,
    "the manifest of an array that is read": figures.OPEN_ARRAY,
    f"a run of `maintain`, with {figures.CHUNKS_VERIFIED} chunks verified, and 1 LIST more for every 1,000 objects": (
        figures.MAINTAIN + Requests(get=figures.CHUNKS_VERIFIED)
    ),
}


def tables() -> dict[str, str]:
    """Return the tables by their names on the page."""
    return {"prices": _prices(known_prices()), "figures": _figures()}


def _prices(prices: dict[str, Prices]) -> str:
    head = ("name", "storage, GB-month", "1,000 PUT, LIST", "1,000 GET", "GB read", "GB that leaves", "as of")
    rows = (
        (
            f"`{name}`: {each.service}, {each.region}",
            *(f"${value:g}" for value in (each.storage_gb_month, each.put_1000, each.get_1000)),
            *(f"${value:g}" for value in (each.retrieval_gb, each.transfer_gb)),
            f"[{each.as_of}]({each.source})",
        )
        for name, each in prices.items()
    )
    return _table(head, rows)


def _figures() -> str:
    rows = ((text, *_counts(requests)) for text, requests in OPERATIONS.items())
    return _table(("operation", "PUT", "GET", "LIST"), rows)


def _counts(requests: Requests) -> Sequence[str]:
    return [f"{count:g}" if count else "" for count in (requests.put, requests.get, requests.list)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def part(text: str, name: str) -> str:
    """Return what stands between the marks of a table."""
    found = re.search(f"<!-- {name}: begin -->\n(.*?)\n?<!-- {name}: end -->", text, re.DOTALL)
    assert found is not None, name
    return found[1]


def main() -> None:
    """Write the tables of the page anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        mark = f"<!-- {name}: begin -->\n"
        text = text.replace(f"{mark}{part(text, name)}", f"{mark}{table}\n".rstrip("\n"), 1)
        text = re.sub(f"\n*<!-- {name}: end -->", f"\n<!-- {name}: end -->", text)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
