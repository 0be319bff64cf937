"""Plans of rechunking: what they promise about boxes, bytes and memory, for any shape."""

from __future__ import annotations

import math

import numpy as np
import pytest

from arraystore.errors import InvalidInputError
from arraystore.transforms.boxes import cut_boxes, share_out, touched_boxes
from arraystore.transforms.rechunking.boxes import copy_cost
from arraystore.transforms.rechunking.plan import RechunkPlan, plan_copies

MiB = 1 << 20


def check_plan(plan: RechunkPlan, read_unit: tuple[int, ...], write_unit: tuple[int, ...]) -> None:
    """Check what every plan promises: boxes of whole units of writing, within memory, from source to target."""
    assert [(stage.source, stage.target) for stage in plan.stages] in (
        [("source", "target")],
        [("source", "intermediate"), ("intermediate", "target")],
    )
    assert plan.stages[0].read_unit == read_unit
    assert plan.stages[-1].write_unit == write_unit
    if plan.intermediate is not None:
        assert plan.stages[0].write_unit == plan.stages[1].read_unit == plan.intermediate
    for stage in plan.stages:
        for side, unit, size in zip(stage.box, stage.write_unit, plan.shape, strict=True):
            assert side % unit == 0 or side == size
        assert math.prod(stage.box) * plan.itemsize <= stage.memory <= plan.memory
        assert stage.cost.write_bytes == plan.nbytes <= stage.cost.read_bytes


@pytest.mark.parametrize("seed", range(30))
def test_any_plan_holds_whole_chunks_within_memory(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 5))
    shape, source, target = (tuple(map(int, rng.integers(1, high, ndim))) for high in (60, 40, 40))
    itemsize = int(rng.choice([1, 2, 4, 8]))
    units = [tuple(min(side, size) for side, size in zip(unit, shape, strict=True)) for unit in (source, target)]
    least = itemsize * (2 * math.prod(units[0]) + 3 * math.prod(units[1]))
    memory = least * int(rng.integers(1, 20))
    check_plan(plan_copies(shape, itemsize, source, target, memory), *units)


def test_maps_become_series_through_one_intermediate_copy_and_nothing_is_read_twice() -> None:
    plan = plan_copies((4096, 512, 512), 4, (1, 512, 512), (4096, 8, 8), 512 * MiB)
    check_plan(plan, (1, 512, 512), (4096, 8, 8))
    assert len(plan.stages) == 2
    assert [stage.cost.read_bytes for stage in plan.stages] == [plan.nbytes, plan.nbytes]
    assert "with an intermediate array in" in str(plan)
    assert str(plan).count("4.0 GiB read (1.00 times), 4.0 GiB written") == 2


@pytest.mark.parametrize("parallel", [8, 64, 1000])
def test_many_slots_get_enough_boxes(parallel: int) -> None:
    plan = plan_copies((87600, 721, 1440), 4, (1, 721, 1440), (87600, 10, 10), 1024 * MiB, parallel)
    assert all(stage.cost.boxes >= min(parallel, 300) for stage in plan.stages)


def test_where_boxes_of_common_multiples_fit_the_copy_is_direct() -> None:
    plan = plan_copies((8760, 720, 1440), 4, (24, 180, 180), (72, 90, 90), 512 * MiB)
    assert plan.intermediate is None
    assert plan.stages[0].cost.read_bytes == plan.nbytes
    assert all(
        side % lcm == 0 or side == size
        for side, lcm, size in zip(plan.stages[0].box, (72, 180, 180), plan.shape, strict=True)
    )


def test_the_same_chunks_are_copied_directly() -> None:
    plan = plan_copies((100, 100), 8, (10, 10), (10, 10), MiB)
    assert (plan.intermediate, plan.stages[0].cost.read_bytes) == (None, 80_000)


def test_memory_that_does_not_hold_a_chunk_is_refused_with_what_is_needed() -> None:
    with pytest.raises(
        InvalidInputError, match=r"a task needs 20000 bytes for chunks of 10×100 at the source and 10×100"
    ):
        plan_copies((100, 100), 4, (10, 100), (10, 100), 10_000)


def test_arrays_without_items_or_dimensions_have_plans() -> None:
    assert plan_copies((0, 5), 4, (1, 5), (1, 1), 1000).stages == ()
    assert plan_copies((), 4, (), (), 1000).stages[0].cost.boxes == 1


@pytest.mark.parametrize("seed", range(20))
def test_costs_are_those_of_boxes_counted_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, box, unit = (tuple(map(int, rng.integers(1, high, 2))) for high in (30, 12, 12))
    cost = copy_cost(shape, 4, box, unit, unit)
    reads = cells = 0
    for bounds in cut_boxes(shape, box).tolist():
        sides = [range(low // unit[axis], -(-high // unit[axis])) for axis, (low, high) in enumerate(bounds)]
        reads += math.prod(map(len, sides))
        cells += math.prod(
            min(each[-1] * u + u, s) - each[0] * u for each, u, s in zip(sides, unit, shape, strict=True)
        )
    assert (cost.boxes, cost.reads, cost.read_bytes) == (len(cut_boxes(shape, box)), reads, 4 * cells)


@pytest.mark.parametrize("seed", range(20))
def test_touched_boxes_are_those_that_overlap_a_chunk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, step, unit = (tuple(map(int, rng.integers(1, high, 2))) for high in (30, 12, 12))
    grid = tuple(-(-size // side) for size, side in zip(shape, unit, strict=True))
    present = rng.random(grid) < 0.3
    cells = np.repeat(np.repeat(present, unit[0], 0), unit[1], 1)[: shape[0], : shape[1]]
    expected = [bool(cells[a:b, c:d].any()) for (a, b), (c, d) in cut_boxes(shape, step).tolist()]
    assert touched_boxes(shape, step, unit, np.argwhere(present)).tolist() == expected


def test_boxes_of_empty_and_of_scalar_arrays() -> None:
    assert cut_boxes((0, 5), (2, 2)).shape == (0, 2, 2)
    assert cut_boxes((), ()).shape == (1, 0, 2)
    assert touched_boxes((), (), (), np.empty((1, 0), np.int64)).tolist() == [True]
    assert touched_boxes((), (), (), np.empty((0, 0), np.int64)).tolist() == [False]


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_runs_of_about_equal_weight_and_none_is_lost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 100, int(rng.integers(0, 200)))
    shares = share_out(weights, 7)
    assert [at for part in shares for at in range(part.start, part.stop)] == list(range(len(weights)))
    assert len(shares) <= 7
    assert all(weights[part].sum() <= weights.sum() / 7 + 200 for part in shares)
