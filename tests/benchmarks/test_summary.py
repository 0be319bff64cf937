"""The summary of docs/benchmarks.md says what the stored results say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.report import load_results
from benchmarks.speed.bars import verdicts
from benchmarks.speed.page import kept
from benchmarks.speed.rows import rows_of
from benchmarks.summary import page
from benchmarks.summary.groups import compare
from benchmarks.summary.missed import CAUSES, Missed, explained, missed_bars

ROOT = Path(__file__).parents[2]
RENEW = "run `python -m benchmarks.summary` to write it anew"


def _missed() -> list[Missed]:
    return missed_bars(load_results(ROOT / "benchmarks" / "results.json").values(), verdicts(rows_of(kept())))


def test_the_page_begins_with_the_summary_of_the_stored_results() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    shown = text[text.index(page.BEGIN) + len(page.BEGIN) : text.index(page.END)]
    assert shown.strip() == page.rendered(), RENEW


@pytest.mark.parametrize("name", page.charts())
def test_the_charts_are_those_of_the_stored_results(name: str) -> None:
    drawn = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert drawn == page.charts()[name], RENEW
    ET.fromstring(drawn)


def test_every_missed_bar_has_a_cause_and_no_cause_is_idle() -> None:
    assert sum(len(bars) for _, bars in explained(_missed())) == len(_missed()) > 0


def test_a_bar_without_cause_and_a_cause_without_bar_are_refused() -> None:
    with pytest.raises(SystemExit, match="does not say why this bar was missed: something else"):
        explained([*_missed(), Missed("something else", "2.00", "≤ 1")])
    with pytest.raises(SystemExit, match=f"explains what is not missed any more: {re.escape(CAUSES[0].work)}"):
        explained([each for each in _missed() if not re.search(CAUSES[0].pattern, each.what)])


def test_every_line_of_the_speed_table_is_in_a_group() -> None:
    lines = [line for line in rows_of(kept()) if line.workload != "map"]
    assert sum(len(compare([line])) for line in lines) == len(lines)
