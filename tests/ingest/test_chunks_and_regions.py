"""Chunks are of bearable size and keep ends aligned; regions cover every chunk once, and tasks share none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidInputError
from arraystore.ingest import parse_chunks
from arraystore.ingest.chunks import LARGEST_NATIVE_BYTES, TARGET_BYTES, choose_chunks
from arraystore.ingest.model import ArrayPlan, Origin, VariableInfo
from arraystore.ingest.regions import assign_to_tasks, cut, regions_of


def variable(shape: tuple[int, ...], chunks: tuple[int, ...] | None = None, dtype: str = "f4") -> VariableInfo:
    return VariableInfo("v", ("time", "y", "x", "z")[: len(shape)], shape, np.dtype(dtype), {}, chunks)


def test_chunks_are_parsed_by_dimension() -> None:
    assert parse_chunks("time=60, lat=37") == {"time": 60, "lat": 37}
    assert parse_chunks("") == {}
    assert parse_chunks("x=\x1f7") == {"x": 7}


@pytest.mark.parametrize(
    "text", ["time", "time=", "time=0", "time=-1", "=3", "time=3.5", "time=x", "time=²", "time=" + 5000 * "9"]
)
def test_other_texts_are_no_chunks(text: str) -> None:
    with pytest.raises(InvalidInputError, match="DIMENSION=SIZE"):
        parse_chunks(text)


def test_a_small_array_is_one_chunk() -> None:
    assert choose_chunks(variable((240, 37, 49), (1, 37, 49)), {}, None, []) == (240, 37, 49)


def test_small_native_chunks_are_taken_together_along_the_first_dimension() -> None:
    chunks = choose_chunks(variable((10_000, 100, 100), (1, 100, 100)), {}, None, [])
    assert chunks[1:] == (100, 100)
    assert TARGET_BYTES / 2 < math.prod(chunks) * 4 <= TARGET_BYTES


def test_large_native_chunks_are_kept() -> None:
    assert choose_chunks(variable((100, 1000, 2000), (1, 1000, 2000)), {}, None, []) == (1, 1000, 2000)


def test_an_array_without_chunks_is_cut() -> None:
    chunks = choose_chunks(variable((400, 1000, 2000)), {}, None, [])
    assert math.prod(chunks) * 4 <= TARGET_BYTES


def test_the_chunk_along_the_append_dimension_divides_the_length_of_every_source() -> None:
    assert choose_chunks(variable((90, 10, 10)), {}, "time", [31, 28, 31])[0] == 1
    assert choose_chunks(variable((72, 10, 10)), {}, "time", [24, 48])[0] == 24


def test_chunks_that_are_asked_for_are_taken_as_they_are() -> None:
    assert choose_chunks(variable((240, 37, 49)), {"time": 60, "other": 3}, "time", [240])[0] == 60


@given(
    shape=st.lists(st.integers(0, 3000), min_size=0, max_size=3),
    native=st.booleans(),
    wanted=st.dictionaries(st.sampled_from(["time", "y", "x"]), st.integers(1, 5000)),
)
def test_chunks_always_exist_and_are_bounded(shape: list[int], native: bool, wanted: dict[str, int]) -> None:
    given_chunks = tuple(max(1, n // 2) for n in shape) if native else None
    chunks = choose_chunks(variable(tuple(shape), given_chunks), wanted, None, [])
    assert len(chunks) == len(shape)
    assert all(size >= 1 for size in chunks)
    if not wanted:
        assert math.prod(chunks) * 4 <= LARGEST_NATIVE_BYTES


@st.composite
def plans(draw: st.DrawFn) -> ArrayPlan:
    """An append of several sources to an array that ends on a chunk boundary."""
    chunks = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    start = chunks[0] * draw(st.integers(0, 3))
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    shape = (start + sum(lengths), *(draw(st.integers(1, 11)) for _ in chunks[1:]))
    starts = [start + sum(lengths[:i]) for i in range(len(lengths))]
    origins = tuple(Origin(i, at, n) for i, (at, n) in enumerate(zip(starts, lengths, strict=True)))
    return ArrayPlan(variable(shape, chunks, "i8"), start, 0, start == 0, False, origins)


@given(plan=plans(), limit=st.integers(1, 2000), tasks=st.integers(1, 7))
def test_regions_cover_everything_once_in_whole_chunks_and_no_two_tasks_share_a_chunk(
    plan: ArrayPlan, limit: int, tasks: int
) -> None:
    hands = assign_to_tasks(regions_of(plan, limit), tasks)
    assert len(hands) <= tasks
    assert all(hands)
    times_written = np.zeros(plan.variable.shape, int)
    owner: dict[tuple[int, ...], int] = {}
    for task, hand in enumerate(hands):
        for region in hand:
            box = tuple(slice(low, high) for low, high in region.box)
            times_written[box] += 1
            for cell in np.argwhere(np.ones(region.shape, bool)):
                chunk = tuple((cell + [low for low, _ in region.box]) // plan.chunks)
                assert owner.setdefault(chunk, task) == task
    assert (times_written[plan.start :] == 1).all()
    assert (times_written[: plan.start] == 0).all()


@given(plan=plans(), limit=st.integers(1, 2000))
def test_the_pieces_of_a_region_bring_every_element_from_its_source(plan: ArrayPlan, limit: int) -> None:
    # Each source holds, along the first dimension, the position at which it must arrive.
    sources = [np.arange(origin.start, origin.start + origin.length) for origin in plan.origins]
    for region in regions_of(plan, limit):
        arrived = np.full(region.shape[0], -1)
        for piece in region.pieces:
            (low, high), (to_low, to_high) = piece.take[0], piece.put[0]
            arrived[to_low:to_high] = sources[piece.source][low:high]
            assert piece.take[1:] == region.box[1:]
        assert arrived.tolist() == list(range(*region.box[0]))


def test_a_region_is_no_larger_than_the_limit_unless_one_chunk_is() -> None:
    boxes = list(cut(((0, 100), (0, 100)), (10, 10), 1, 1000))
    assert max(math.prod(high - low for low, high in box) for box in boxes) == 1000
    assert len(list(cut(((0, 100), (0, 100)), (50, 50), 1, 1))) == 4


def test_regions_are_dealt_by_bytes_in_order() -> None:
    plan = ArrayPlan(variable((12, 10), (1, 10), "i8"), 0, None, True, False, (Origin(0, 0, 0),))
    hands = assign_to_tasks(regions_of(plan, 1), 3)
    assert [len(hand) for hand in hands] == [4, 4, 4]
    assert [region.box[0][0] for hand in hands for region in hand] == list(range(12))
