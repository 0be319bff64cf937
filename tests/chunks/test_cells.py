"""Sets of cells agree with sets of tuples, whatever form their parts have, and never list what nobody asked for."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._chunks import cells as module
from arraystore._chunks.cells import Cells, Int64s, any_shared, cells_of, shared
from arraystore._format.box import MAX_VOLUME, Box
from arraystore._format.layer import Layer
from arraystore._format.manifest import Manifest, encode_manifest
from arraystore._format.transaction import ChunkChange, Presence
from arraystore.errors import FormatError

NODE, LAYER = b"n" * 12, b"l" * 12

Coords = tuple[int, ...]


def coords_in(box: Box) -> list[Coords]:
    return list(itertools.product(*map(range, box.low, box.high)))


def meaning(cells: Cells) -> list[Coords]:
    """Tell the cells one by one, without the code under test."""
    all_of_them = coords_in(cells.box)
    return all_of_them if cells.numbers is None else [all_of_them[n] for n in cells.numbers.tolist()]


def rows(coords: Int64s) -> list[Coords]:
    assert coords.dtype == np.int64
    return [tuple(row) for row in coords.tolist()]


def array(coords: Sequence[Coords], ndim: int) -> Int64s:
    return np.array(coords, dtype=np.int64).reshape(len(coords), ndim)


def check(ours: Sequence[Cells], theirs: Sequence[Cells]) -> list[Coords]:
    """Compare with sets of tuples, both ways round."""
    expected = sorted({c for part in ours for c in meaning(part)} & {c for part in theirs for c in meaning(part)})
    for one, other in ((ours, theirs), (theirs, ours)):
        assert rows(shared(one, other)) == expected
        assert any_shared(one, other) == bool(expected)
    return expected


@st.composite
def boxes(draw: st.DrawFn, ndim: int) -> Box:
    low = draw(st.tuples(*[st.integers(-2, 4)] * ndim))
    return Box(low, tuple(start + draw(st.integers(1, 4)) for start in low))


@st.composite
def parts(draw: st.DrawFn, ndim: int) -> Cells:
    box = draw(boxes(ndim))
    if draw(st.booleans()):
        return Cells(box, None)
    numbers = draw(st.sets(st.integers(0, box.volume - 1), max_size=10))
    return Cells(box, np.array(sorted(numbers), dtype=np.int64))


def sides(ndim: int, most: int = 4) -> st.SearchStrategy[list[Cells]]:
    return st.lists(parts(ndim), max_size=most)


@pytest.fixture(
    params=[
        "as chosen",
        "never few",
        "few at once",
        "always listed",
        "always in bulk",
        "never in bulk",
        "mask",
        "sorted",
    ]
)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Push even small sets through each way in which large ones are compared."""
    chosen = {
        "few at once": {"_PAIRS_AT_ONCE": 2},
        "always listed": {"_CROWD": 0},
        "always in bulk": {"_CROWD": 0, "_SEARCH_COST": 1 << 40},
        "never in bulk": {"_SEARCH_COST": -(1 << 40)},
        "mask": {"_CROWD": 0, "_SEARCH_COST": 1 << 40, "_MASK_PER_NUMBER": 1 << 10},
        "sorted": {"_CROWD": 0, "_SEARCH_COST": 1 << 40, "_MASK_PER_NUMBER": 0},
    }
    fewest = {} if request.param == "as chosen" else {"_FEW": -1}
    for name, value in (fewest | chosen.get(request.param, {})).items():
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("ndim", range(5))
def test_shared_cells_are_the_intersection_of_the_unions(ndim: int) -> None:
    @given(ours=sides(ndim), theirs=sides(ndim))
    def compare(ours: list[Cells], theirs: list[Cells]) -> None:
        check(ours, theirs)

    compare()


@pytest.mark.usefixtures("way")
def test_many_overlapping_parts_of_every_form_are_compared_exactly() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        both = []
        for _ in range(2):
            side = []
            for _ in range(12):
                low = rng.integers(0, 6, 3)
                box = Box(tuple(low.tolist()), tuple((low + rng.integers(1, 5, 3)).tolist()))
                picked = np.flatnonzero(rng.random(box.volume) < rng.random() ** 2)
                side.append(Cells(box, None if rng.random() < 0.3 else picked.astype(np.int64)))
            both.append(side)
        check(*both)


@given(data=st.data(), ndim=st.integers(0, 4))
def test_a_set_of_cells_lists_them_in_row_major_order_once(data: st.DataObject, ndim: int) -> None:
    given_cells = data.draw(st.lists(st.tuples(*[st.integers(-3, 5)] * ndim), min_size=1, max_size=30))
    made = Cells.of(array(given_cells, ndim))
    assert rows(made.coords()) == meaning(made) == sorted(set(given_cells))
    assert made.count == len(set(given_cells))
    assert (made.numbers is None) == (made.count == made.box.volume)


@given(data=st.data(), ndim=st.integers(0, 4))
def test_shifted_cells_are_the_same_cells_elsewhere(data: st.DataObject, ndim: int) -> None:
    part = data.draw(parts(ndim))
    shift = data.draw(st.tuples(*[st.integers(-3, 9)] * ndim))
    moved = [tuple(a + b for a, b in zip(c, shift, strict=True)) for c in meaning(part)]
    assert rows(part.shifted(shift).coords()) == meaning(part.shifted(shift)) == moved


def test_the_one_cell_of_a_scalar_is_shared() -> None:
    scalar = Cells(Box((), ()), None)
    assert scalar.count == 1
    assert rows(scalar.coords()) == [()]
    assert check([scalar], [Cells.of(np.empty((1, 0), dtype=np.int64))]) == [()]
    assert shared([scalar], []).shape == (0, 0)


def test_nothing_shared_has_the_shape_of_coordinates() -> None:
    here = Cells(Box((0, 0, 0), (2, 2, 2)), None)
    there = here.shifted((2, 0, 0))
    for ours, theirs in (([here], [there]), ([here], []), ([], [here])):
        assert shared(ours, theirs).shape == (0, 3)
        assert not any_shared(ours, theirs)
    assert shared([], []).shape == (0, 0)
    assert not any_shared([], [])


def test_more_dimensions_than_numpy_can_reshape_into_are_possible() -> None:
    low = (0,) * 64
    ours = Cells(Box(low, (*[1] * 62, 2, 3)), None)
    theirs = Cells.of(array([(*[0] * 62, 1, 1), (*[0] * 62, 5, 1)], 64))
    assert rows(ours.coords()) == meaning(ours)
    assert check([ours], [theirs]) == [(*[0] * 62, 1, 1)]


def test_cells_of_different_grids_are_refused() -> None:
    plane, line = Cells(Box((0, 0), (1, 1)), None), Cells(Box((0,), (1,)), None)
    for compare in (shared, any_shared):
        with pytest.raises(ValueError, match=r"grids with \[1, 2\] dimensions cannot be compared"):
            compare([plane], [line])


def test_a_set_without_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="needs at least one cell"):
        Cells.of(np.empty((0, 2), dtype=np.int64))


# Vast grids: numbers up to 2**63, and boxes that nobody could list.

FAR = 1 << 62


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Fail what lists a vast box: it takes no more than a few megabytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("little_memory", "way")
def test_a_vast_box_is_never_listed() -> None:
    vast = Cells(Box((0, 0, 0), (1 << 21, 1 << 21, (1 << 21) - 1)), None)
    corners = [(0, 0, 0), (5, 1 << 20, 7), ((1 << 21) - 1, (1 << 21) - 1, (1 << 21) - 2)]
    listed = Cells.of(array(corners, 3))
    assert rows(shared([vast], [listed])) == rows(shared([listed], [vast])) == corners
    assert any_shared([vast], [vast])
    slab = Cells(Box((4, 1 << 20, 0), (6, (1 << 20) + 1, 9)), None)
    assert rows(shared([vast, vast], [slab, slab])) == meaning(slab)
    assert not any_shared([vast], [listed.shifted((1 << 21, 0, 0))])


@pytest.mark.usefixtures("little_memory")
def test_a_box_written_again_and_again_is_listed_once() -> None:
    box = Box((0, 0), (500, 200))
    again, elsewhere = [Cells(box, None) for _ in range(300)], Cells(Box((499, 199), (501, 201)), None)
    assert len(shared(again, [*again, elsewhere])) == box.volume


@pytest.mark.usefixtures("little_memory", "way")
def test_numbers_up_to_the_largest_are_told_apart() -> None:
    ours = Cells.of(array([(0,), (1,), (MAX_VOLUME - 2,), (MAX_VOLUME - 1,)], 1))
    theirs = Cells.of(array([(1,), (2,), (MAX_VOLUME - 1,)], 1))
    assert rows(shared([ours], [theirs])) == [(1,), (MAX_VOLUME - 1,)]
    edge = Cells(Box((MAX_VOLUME - 3,), (MAX_VOLUME,)), None)
    assert rows(shared([ours], [edge])) == [(MAX_VOLUME - 2,), (MAX_VOLUME - 1,)]


@pytest.mark.usefixtures("little_memory", "way")
def test_a_grid_with_more_cells_than_can_be_numbered_is_compared_part_by_part() -> None:
    def side(*cells: Coords) -> list[Cells]:
        row = Cells.of(array([(0, 3), (0, FAR), *cells], 2))
        column = Cells.of(array([(3, 0), (FAR, 0)], 2))
        corner = Cells.of(array([(FAR, FAR), (FAR, FAR + 2)], 2))
        return [row, column, corner, Cells(Box((FAR - 1, 0), (FAR + 1, 2)), None)]

    expected = [(0, 3), (0, FAR), (3, 0), (FAR - 1, 0), (FAR - 1, 1), (FAR, 0), (FAR, 1), (FAR, FAR), (FAR, FAR + 2)]
    assert rows(shared(side((0, 4)), side((0, 5)))) == expected
    assert any_shared(side(), side()[2:3])


def test_cells_too_far_apart_for_one_set_are_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match="put them into several sets"):
        Cells.of(array([(0, 0), (FAR, FAR)], 2))


@pytest.mark.parametrize("axis", range(3))
def test_cells_keep_their_places_in_boxes_of_vast_sides(axis: int) -> None:
    side = [2, 2, 2]
    side[axis] = 1 << 60
    rng = np.random.default_rng(axis)
    points = np.unique(rng.integers(0, side, (200, 3)), axis=0)
    ours, theirs = Cells.of(points[::2]), Cells.of(points[::3])
    assert rows(shared([ours], [theirs])) == rows(points[::6])
    assert rows(shared([Cells.of(points)], [Cells(Box((0, 1, 0), (1 << 60, 2, 1 << 60)), None)])) == rows(
        points[points[:, 1] >= 1] if axis != 1 else points[points[:, 1] == 1]
    )


# Large sets, in which every way is taken because it is the cheapest.


def regular(start: int, step: int) -> list[Cells]:
    numbers = np.arange(start, 1 << 30, step, dtype=np.int64)
    coords = np.stack([numbers >> 20, numbers >> 10 & 1023, numbers & 1023], axis=1)
    return [Cells.of(part) for part in np.array_split(coords, 16)]


@pytest.mark.parametrize(("start", "step"), [(0, 1 << 13), (1, 1 << 13), (0, 3 << 12), (7, 12345)])
def test_large_scattered_sets_share_what_they_have_in_common(start: int, step: int) -> None:
    ours, theirs = regular(0, 1 << 12), regular(start, step)
    numbers = np.arange(start, 1 << 30, step, dtype=np.int64)
    expected = numbers[numbers % (1 << 12) == 0]
    found = shared(ours, theirs)
    assert np.array_equal(found @ np.array([1 << 20, 1 << 10, 1]), expected)
    assert any_shared(ours, theirs) == bool(len(expected))


def test_large_shuffled_sets_share_what_they_have_in_common() -> None:
    rng = np.random.default_rng(5)
    points = np.unique(rng.integers(0, 1000, (100_000, 3)), axis=0)
    mine, yours = points[: len(points) * 2 // 3], points[len(points) // 3 :]
    ours = [Cells.of(part) for part in np.array_split(rng.permutation(mine), 8)]
    theirs = [Cells.of(part) for part in np.array_split(rng.permutation(yours), 8)]
    assert np.array_equal(shared(ours, theirs), points[len(points) // 3 : len(points) * 2 // 3])


# Changes as they stand in transaction logs.


def inlined(manifest: Manifest, shift: Coords | None = None) -> ChunkChange:
    box = manifest.box if shift is None else manifest.box.shifted(shift)
    return ChunkChange(NODE, Layer(LAYER, box, manifest.count, inline=encode_manifest(manifest), shift=shift))


def manifest_of(cells: Cells) -> Manifest:
    zeros = np.zeros(cells.count, dtype=np.int64)
    return Manifest(cells.box, cells.numbers, zeros, zeros, zeros + 1, b"p" * 12)


@pytest.mark.parametrize("cells", [[(1, 2), (3, 4)], [(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (900, 800)]])
@pytest.mark.parametrize("shift", [None, (10, 0)])
def test_a_change_speaks_of_its_cells_after_the_shift(cells: list[Coords], shift: Coords | None) -> None:
    made = Cells.of(array(cells, 2))
    there = made if shift is None else made.shifted(shift)
    found = Presence.of(made.box, made.numbers, made.count)
    attached = ChunkChange(NODE, Layer(LAYER, there.box, made.count, shift=shift), (found.kind, found.data))
    for change in (attached, inlined(manifest_of(made), shift)):
        assert rows(cells_of("log", change).coords()) == meaning(there)


def test_a_filled_layer_tells_its_cells_by_its_box() -> None:
    box = Box((0, 4), (1000, 900))
    cells = cells_of("log", ChunkChange(NODE, Layer(LAYER, box, box.volume)))
    assert (cells.box, cells.numbers) == (box, None)


def test_a_file_is_one_cell() -> None:
    cells = cells_of("log", ChunkChange(NODE, Layer(LAYER, Box((), ()), 1)))
    assert rows(cells.coords()) == [()]


SPARSE = inlined(manifest_of(Cells.of(array([(0,), (5,)], 1))))


@pytest.mark.parametrize(
    ("layer", "presence", "message"),
    [
        (replace(SPARSE.layer, inline=None), None, "must list its cells"),
        (replace(SPARSE.layer, inline=b"nonsense"), None, "inlined manifest"),
        (replace(SPARSE.layer, count=3), None, "not the one that its layer describes"),
        (replace(SPARSE.layer, box=Box((1,), (7,))), None, "not the one that its layer describes"),
        (replace(SPARSE.layer, shift=(1,)), None, "not the one that its layer describes"),
        (SPARSE.layer, (0, b""), "must fill the box"),
    ],
)
def test_a_change_that_contradicts_itself_is_refused(
    layer: Layer, presence: tuple[int, bytes] | None, message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        cells_of("log", ChunkChange(NODE, layer, presence))
