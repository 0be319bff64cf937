"""The speed table measures what it says, tried on tiny loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.places import PlaceMaker
from benchmarks.speed import page
from benchmarks.speed.bars import verdicts
from benchmarks.speed.charts import draw
from benchmarks.speed.contenders import DISTANT, ICECHUNK, LOCAL, OCDBT, OURS_REGIONS, OURS_ZARR, PEERS, ZARRS
from benchmarks.speed.datasets import Contender
from benchmarks.speed.rows import Row, rows_of
from benchmarks.speed.workloads import WORKLOADS, distant_workloads, workloads

QUICK = workloads(quick=True)
OURS = [each for each in LOCAL if each.name in (OURS_ZARR, OURS_REGIONS)]


def _run(contender: Contender, name: str, directory: Path) -> dict[str, float]:
    workload, places = QUICK[name], PlaceMaker("local", directory)
    with places.fresh() as place, contender.settings():
        workload.prepare(contender, place)
        return workload.run(contender, place, places).parts


@pytest.mark.parametrize("contender", LOCAL, ids=lambda contender: contender.name)
def test_every_contender_gives_back_what_it_was_given(contender: Contender, tmp_path: Path) -> None:
    fitting = [name for name in ("4k-raw", "4k-zstd") if QUICK[name].suits(contender)]
    assert fitting
    for name in fitting:
        assert _run(contender, name, tmp_path).keys() == {"write", "read"}
    assert list(tmp_path.iterdir()) == [], "a workload clears away what it wrote"


@pytest.mark.parametrize("name", ["series", "map", "crops", "rechunk", "append", "variables"])
def test_every_workload_checks_what_it_reads(name: str, tmp_path: Path) -> None:
    for contender in OURS:
        if QUICK[name].suits(contender):
            assert _run(contender, name, tmp_path).keys() == set(QUICK[name].parts)


def test_names_of_workloads_are_those_of_quick_and_full_runs() -> None:
    assert (*workloads(), *distant_workloads()) == WORKLOADS
    assert {each.name for each in (*LOCAL, *DISTANT)} >= PEERS | {OURS_ZARR, OURS_REGIONS}
    assert {ICECHUNK, OCDBT, ZARRS} <= PEERS


def _rows() -> list[Row]:
    samples = {
        OURS_ZARR: {"write": [1.0, 2.0, 3.0], "read": [1.0, 1.0, 1.0]},
        OURS_REGIONS: {"write": [0.5, 1.0, 9.0], "read": [0.5, 0.5, 0.5]},
        ZARRS: {"write": [2.0, 4.0, 6.0], "read": [0.5, 0.5, 0.5]},
        OCDBT: {"write": [1.0, 2.0, 3.0], "read": [1.0, 1.0, 1.0]},
        ICECHUNK: {"write": [4.0, 8.0, 12.0], "read": [2.0, 2.0, 2.0]},
    }
    return [Row("4k-raw", "chunks", samples)]


def test_ratios_are_medians_over_pairs_of_one_round() -> None:
    write, read = rows_of(_rows())
    assert write.ratios[OURS_REGIONS] == 0.5
    assert write.ratios[ICECHUNK] == 4.0
    assert read.ratio(OURS_ZARR, ZARRS) == 2.0
    assert read.ratio(OURS_ZARR, "nobody") is None


def test_bars_are_met_and_missed_as_the_figures_say() -> None:
    found = {(each.what, each.ours, each.peer): each for each in verdicts(rows_of(_rows()))}
    assert found["chunks: write", OURS_ZARR, ZARRS].met
    assert not found["chunks: read", OURS_ZARR, ZARRS].met
    assert found["chunks: read", OURS_REGIONS, OCDBT].ratio == 0.5
    assert found["chunks: read", OURS_ZARR, ICECHUNK].met
    text = page.rendered(rows_of(_rows()))
    assert "| chunks: read | arraystore | zarr directory, zarrs | 2.00 | ≤ 1 | **missed** |" in text


def test_charts_are_drawn(tmp_path: Path) -> None:
    draw(rows_of(_rows()), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["arrays.svg"]
