"""Sets of references are laid over each other as dictionaries are, and cut into manifests without loss."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._format.locations import NO_LOCATIONS, locations_from_urls
from arraystore._format.manifest import Manifest, decode_manifest, encode_manifest
from arraystore._format.references import (
    DELETED,
    INLINE,
    VIRTUAL,
    References,
    overlay,
    stretches_to_manifests,
    to_manifests,
)

Cells = dict[tuple[int, ...], tuple[object, ...]]
"""What each cell says: where its bytes are, in a form that does not depend on any table."""

PACKS = [bytes([i]) * 12 for i in range(4)]


def meaning(references: References) -> Cells:
    cells: Cells = {}
    columns = (references.source, references.offset, references.length)
    for coords, source, offset, length in zip(references.coords.tolist(), *(c.tolist() for c in columns), strict=True):
        assert tuple(coords) not in cells
        if source == DELETED:
            said: tuple[object, ...] = ("deleted",)
        elif source == INLINE:
            said = ("inline", references.inline[offset : offset + length])
        elif source >= VIRTUAL:
            table, i = references.locations, source - VIRTUAL
            said = (table.url(i), table.etag(i), table.not_modified_after(i), offset, length)
        else:
            said = (references.packs[source], offset, length)
        cells[tuple(coords)] = said
    return cells


@st.composite
def reference_sets(draw: st.DrawFn, ndim: int, most: int = 12) -> References:
    side = draw(st.sampled_from([3, 10, 1 << 9]))
    cells = sorted(draw(st.sets(st.tuples(*[st.integers(0, side - 1)] * ndim), max_size=most)))
    packs = tuple(draw(st.lists(st.sampled_from(PACKS), unique=True)))
    urls = draw(st.lists(st.sampled_from(["s3://a/b", "s3://a/c", "", "s3://a/"]), max_size=3))
    table = locations_from_urls(urls, ["tag", None, "é"][: len(urls)], [0, 7, 9][: len(urls)]) if urls else NO_LOCATIONS
    inline = draw(st.binary(max_size=30))
    rows = []
    kinds = [*range(len(packs)), *range(VIRTUAL, VIRTUAL + len(urls)), INLINE, DELETED]
    for _ in cells:
        source = draw(st.sampled_from(kinds))
        most_bytes = len(inline) if source == INLINE else 0 if source == DELETED else 1 << 50
        offset = draw(st.integers(0, most_bytes))
        rows.append((source, offset, draw(st.integers(0, most_bytes - offset))))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    coords = np.array(cells, dtype=np.int64).reshape(len(cells), ndim)
    return References(coords, *columns, packs, table, inline)


dimensions = st.integers(0, 4)


@given(dimensions.flatmap(lambda d: st.lists(reference_sets(d), min_size=1, max_size=4)), st.booleans())
def test_the_newest_reference_of_a_cell_counts(parts: list[References], keep_deleted: bool) -> None:
    expected: Cells = {}
    for part in parts:
        expected.update(meaning(part))
    if not keep_deleted:
        expected = {cell: said for cell, said in expected.items() if said != ("deleted",)}
    found = overlay(parts, keep_deleted=keep_deleted)
    if len(parts) > 1 or keep_deleted:
        assert meaning(found) == expected
    assert list(meaning(found)) == sorted(meaning(found)), "cells are in row-major order"
    assert {c: s for c, s in meaning(found).items() if keep_deleted or s != ("deleted",)} == expected


def parts_of(manifests: list[Manifest]) -> list[Cells]:
    return [meaning(References.from_manifest(decode_manifest("test", encode_manifest(m)))) for m in manifests]


@given(dimensions.flatmap(lambda d: reference_sets(d, 40)), st.integers(1, 12))
def test_manifests_cut_from_a_set_hold_it_exactly(references: References, limit: int) -> None:
    manifests = list(to_manifests(references, limit))
    parts = parts_of(manifests)
    assert sum(map(len, parts)) == len(references)
    assert {cell: said for part in parts for cell, said in part.items()} == meaning(references)
    for manifest in manifests:
        assert manifest.count <= limit
        used = set(manifest.source.tolist())
        assert used >= set(range(manifest.pack_count + len(manifest.locations))), "no table row without use"


@given(
    dimensions.flatmap(lambda d: reference_sets(d, 40)),
    st.integers(1, 12),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_a_set_in_stretches_makes_the_same_manifests(references: References, limit: int, cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(references)]
    stretches = [references.take(slice(*span)) for span in itertools.pairwise(bounds)]
    found = [encode_manifest(m) for m in stretches_to_manifests(lambda: iter(stretches), limit)]
    assert found == [encode_manifest(m) for m in to_manifests(references, limit)]


@given(st.data())
def test_a_tile_is_never_split_and_scattered_tiles_share_manifests(data: st.DataObject) -> None:
    grid, limit, tile = (6, 7, 5), 20, (1, 4, 5)  # whole rows of 5, four of them: 20 cells
    cells = list(itertools.product(*map(range, grid)))
    corner = (5, 6, 4)  # the set reaches to the corner, so that tiles are those of this grid
    chosen = data.draw(st.lists(st.sampled_from(cells), min_size=40, max_size=60, unique=True))
    coords = np.array(sorted({*chosen, corner}), dtype=np.int64)
    zeros = np.zeros(len(coords), dtype=np.int64)
    manifests = list(to_manifests(References(coords, zeros, zeros, zeros, (bytes(12),)), limit))
    home: dict[tuple[int, ...], int] = {}
    for i, part in enumerate(parts_of(manifests)):
        for cell in part:
            assert home.setdefault(tuple(c // t for c, t in zip(cell, tile, strict=True)), i) == i
    for one, next_one in itertools.pairwise(manifests):
        assert one.count + next_one.count > limit, "two that fit into one"


def test_references_scattered_over_a_huge_grid_fill_few_manifests() -> None:
    generator = np.random.default_rng(3)
    coords = np.unique(generator.integers(0, 1 << 20, (5000, 2)), axis=0).astype(np.int64)
    zeros = np.zeros(len(coords), dtype=np.int64)
    manifests = list(to_manifests(References(coords, zeros, zeros, zeros, (bytes(12),)), 1000))
    assert len(manifests) <= 6
    assert sum(manifest.count for manifest in manifests) == len(coords)


@given(dimensions.flatmap(lambda d: reference_sets(d).filter(len)), st.data())
def test_the_shift_of_a_layer_moves_every_cell(references: References, data: st.DataObject) -> None:
    shift = tuple(data.draw(st.lists(st.integers(0, 1 << 40), min_size=references.coords.shape[1], max_size=4)))
    shift = shift[: references.coords.shape[1]]
    (manifest,) = to_manifests(references)
    moved = meaning(References.from_manifest(manifest, shift))
    expected = {tuple(c + s for c, s in zip(cell, shift, strict=True)): x for cell, x in meaning(references).items()}
    assert moved == expected


def test_a_set_without_references_makes_no_manifest() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert list(to_manifests(References(np.zeros((0, 2), dtype=np.int64), nothing, nothing, nothing))) == []


@pytest.mark.parametrize("limit", [1, 3, 1 << 16])
def test_cells_at_the_far_ends_of_a_huge_grid_are_kept_apart(limit: int) -> None:
    far = (1 << 31) - 1
    coords = np.array([[0, 0], [0, far], [far, 0], [far, far]], dtype=np.int64)
    zeros = np.zeros(4, dtype=np.int64)
    references = References(coords, zeros, np.arange(4), np.arange(4), (bytes(12),))
    parts = parts_of(list(to_manifests(references, limit)))
    assert {cell: said for part in parts for cell, said in part.items()} == meaning(references)
