"""What a pickled fork says of uncommitted changes is checked before it is believed."""

from __future__ import annotations

from typing import Any

import pytest

from arraystore._forks.uncommitted import with_uncommitted
from arraystore._format.box import Box
from arraystore._format.envelope import pack_body
from arraystore._format.layer import Layer
from arraystore._format.node import Node, NodeKind
from arraystore._log.state import SnapshotState
from arraystore.errors import FormatError

LAYER = Layer(b"l" * 12, Box((0,), (1,)), 1)
ARRAY = Node(b"a" * 12, "a", NodeKind.ARRAY, {"zarr.json": b"{}"}, (LAYER,))
BASE = SnapshotState("main", 1, b"s" * 12, None, 0, b"", {"a": ARRAY}, {ARRAY.id: "a"})
NEW = (b"n" * 12, "new", int(NodeKind.ARRAY), {"zarr.json": b"{}"}, 0, (LAYER.to_wire(),))


def wire(gone: tuple[Any, ...] = (), *changed: tuple[Any, ...]) -> bytes:
    return pack_body((gone, changed))


def test_changes_are_put_on_top_of_the_base() -> None:
    state = with_uncommitted(BASE, wire((), NEW, (ARRAY.id, "a", 1, None, 1, (LAYER.to_wire(),))))
    assert state.nodes["a"].layers == (LAYER, LAYER)
    assert state.nodes["new"].layers == (LAYER,)
    assert with_uncommitted(BASE, wire(("a",))).nodes == {}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wire(({},)), "must be strings"),
        (wire((), NEW, NEW), "same id or path"),
        (wire((), NEW, (b"m" * 12, *NEW[1:])), "same id or path"),
        (wire((), (ARRAY.id, "elsewhere", *NEW[2:])), "same id or path"),
        (wire((), (ARRAY.id, "a", 1, None, 2, ())), "keeps must be in 0..1, not 2"),
        (wire((), (ARRAY.id, "a", 1, None, -1, ())), "keeps must be in 0..1, not -1"),
        (wire((), (*NEW[:3], {"unheard-of": b""}, 0, ())), "with known names"),
        (wire((), (*NEW[:3], {"zarr.json": None}, 0, ())), "with known names"),
        (wire((), (*NEW[:2], int(NodeKind.FILE), *NEW[3:])), "a file has none"),
        (wire((), (*NEW[:2], int(NodeKind.FILE), {}, *NEW[4:])), "must have its dimensions"),
        (wire((), (*NEW[:2], int(NodeKind.GROUP), {}, *NEW[4:])), "must have its dimensions"),
    ],
)
def test_changes_that_cannot_be_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=f"uncommitted changes: .*{reason}"):
        with_uncommitted(BASE, data)
