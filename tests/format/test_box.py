"""Boxes number their cells in row-major order, and back."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._format.box import MAX_VOLUME, Box, bounding_box
from arraystore.errors import FormatError
from tests.format.values import boxes


@given(boxes(60, 1 << 62))
def test_cells_are_numbered_in_row_major_order(box: Box) -> None:
    cells = list(itertools.product(*(range(a, b) for a, b in zip(box.low, box.high, strict=True))))
    assert len(cells) == box.volume
    assert [box.number(cell) for cell in cells] == list(range(box.volume))
    found = box.coords(np.arange(box.volume))
    assert list(map(tuple, found.tolist())) == cells
    assert box.numbers(found).tolist() == list(range(box.volume))
    assert all(box.contains(cell) for cell in cells)
    if box.low:
        assert bounding_box(found) == box
        assert not box.contains(box.high)


@given(boxes(), st.data())
def test_numbers_and_coordinates_are_inverse_at_any_size(box: Box, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, box.volume - 1), min_size=1, max_size=5))
    coords = box.coords(np.array(numbers, dtype=np.int64))
    assert box.numbers(coords).tolist() == numbers
    assert [box.number(tuple(row)) for row in coords.tolist()] == numbers
    assert box.shifted(tuple(5 for _ in box.low)).volume == box.volume == math.prod(box.shape)


@given(boxes(30, 4), st.data())
def test_boxes_intersect_where_they_share_a_cell(box: Box, data: st.DataObject) -> None:
    other = data.draw(boxes(30, 4).filter(lambda b: len(b.low) == len(box.low)))
    cells = [set(map(tuple, b.coords(np.arange(b.volume)).tolist())) for b in (box, other)]
    assert box.intersects(other) == bool(cells[0] & cells[1])


@given(boxes())
def test_a_box_decodes_to_what_it_was(box: Box) -> None:
    assert Box.from_wire("test", box.to_wire()) == box


@pytest.mark.parametrize(
    "wire",
    [
        None,
        (),
        ((), (), ()),
        [(0,), (1,)],
        ((0,), [1]),
        ((0,), (0,)),
        ((1,), (0,)),
        ((-1,), (1,)),
        ((0,), (1, 1)),
        ((False,), (True,)),
        ((0,), (1.0,)),
        ((0,), (1 << 63,)),
        ((0, 0), (1 << 32, 1 << 31)),
        ((0,) * 65, (1,) * 65),
        ((0,) * 64, (2,) * 64),
    ],
)
def test_what_is_no_box_is_refused(wire: object) -> None:
    with pytest.raises(FormatError, match="test: "):
        Box.from_wire("test", wire)


def test_the_largest_boxes_are_numbered() -> None:
    assert Box.from_wire("test", ((0,), (MAX_VOLUME,))).volume == MAX_VOLUME
    assert Box.from_wire("test", ((0,) * 62, (2,) * 62)).volume == 1 << 62
    assert Box((), ()).coords(np.arange(1)).shape == (1, 0)
