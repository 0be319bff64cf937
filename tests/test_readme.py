"""README.md: one screen, whose links lead somewhere and whose figures are those of the pages that it leads to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from arraystore import in_memory_storage
from arraystore.storage import CountingStorage
from benchmarks.speed.contenders import ICECHUNK, OURS_ZARR
from benchmarks.speed.page import kept
from benchmarks.speed.rows import rows_of
from tests.commit.support import DistantStorage, create_repository, put_number

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()

FIGURES = {
    "docs/benchmarks.md": ["| objects for 50,000 chunks of 4 KiB | 28 objects | 50,007 |"],
    "docs/verification.md": ["10,010 runs"],
}
"""What pages say that the README repeats."""


def test_the_readme_fits_on_a_screen() -> None:
    assert len(README.splitlines()) <= 60


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?://)([^)#]+)", README))))
def test_a_link_of_the_readme_leads_to_a_file(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize(("page", "text"), [(page, each) for page, texts in FIGURES.items() for each in texts])
def test_a_figure_of_the_readme_is_on_the_page_that_explains_it(page: str, text: str) -> None:
    assert text in (ROOT / page).read_text()
    assert set(re.findall(r"\d[\d,]+", text)) <= set(re.findall(r"\d[\d,]+", README))


def test_the_timing_that_a_peer_wins_is_that_of_the_speed_table() -> None:
    cells = next(row for row in README.splitlines() if row.startswith("| write raw 16 MiB chunks")).split("|")
    (line,) = (line for line in rows_of(kept()) if (line.workload, line.part) == ("16384k-raw", "write"))
    shown = [line.ratios[name] for name in (OURS_ZARR, ICECHUNK, "zarr directory", "zarr directory, fused")]
    assert re.findall(r"\d\.\d+", "".join(cells[2:])) == [f"{ratio:.2f}" for ratio in shown]
    assert line.ratios[ICECHUNK] < 1


def test_a_small_commit_is_one_request() -> None:
    counted = CountingStorage(DistantStorage(in_memory_storage()))
    session = create_repository(counted).writable_session("main")
    put_number(session, 0, 1)
    before = counted.counts
    session.commit("one number")
    assert (counted.counts - before).total == 1
    assert "| commit of a small change | **1 request** |" in README
