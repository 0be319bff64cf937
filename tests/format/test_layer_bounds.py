"""Layers found by columns of their bounds are those that looking at each of them finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._format.box import Box
from arraystore._format.ids import LayerId, NodeId
from arraystore._format.layer import Layer
from arraystore._format.layer_bounds import FEW
from arraystore._format.node import Node, NodeKind


def node_of(boxes: list[Box]) -> Node:
    layers = tuple(Layer(LayerId(number.to_bytes(12, "big")), box, 1) for number, box in enumerate(boxes))
    return Node(NodeId(bytes(12)), "a", NodeKind.ARRAY, {}, layers)


@given(st.integers(1, 3), st.integers(0, 3 * FEW), st.randoms(use_true_random=False))
def test_what_may_have_a_cell_is_found_in_the_order_of_the_layers(dimensions: int, count: int, luck: object) -> None:
    generator = np.random.default_rng(luck.getrandbits(32))  # type: ignore[attr-defined]
    lows = generator.integers(0, 12, (count, dimensions))
    sides = generator.integers(1, 6, (count, dimensions))
    node = node_of(
        [Box(tuple(low), tuple(high)) for low, high in zip(lows.tolist(), (lows + sides).tolist(), strict=True)]
    )
    low = generator.integers(0, 15, dimensions)
    wanted = Box(tuple(low.tolist()), tuple((low + generator.integers(1, 4, dimensions)).tolist()))
    found = node.layers_around(wanted.low, wanted.high)
    expected = [layer for layer in node.layers if layer.box.intersects(wanted)]
    assert [layer for layer in found if layer.box.intersects(wanted)] == expected
    if count > FEW:
        assert found == expected


@pytest.mark.parametrize("count", [1, FEW + 1])
def test_a_value_without_dimensions_has_all_its_layers(count: int) -> None:
    node = node_of([Box((), ())] * count)
    assert list(node.layers_around((), ())) == list(node.layers)
