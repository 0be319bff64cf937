"""References are equal if and only if they name the same bytes in the same place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._format import equality
from arraystore._format.equality import equal_references
from arraystore._format.ids import ID_BYTES
from arraystore._format.locations import NO_LOCATIONS, Locations, concat_locations, locations_from_urls
from arraystore._format.references import DELETED, INLINE, VIRTUAL, References

PACKS = [bytes([i]) * ID_BYTES for i in range(3)]
URLS = ["s3://a/x", "s3://a/y", "s3://a/b/x", "s3://", "https://é/x"]
TEXTS = [b"", b"a", b"b", b"ab", b"abc"]

packed = st.tuples(st.just("pack"), st.sampled_from(PACKS), st.integers(0, 1), st.integers(0, 1))
inlined = st.tuples(st.just("inline"), st.sampled_from(TEXTS))
virtual = st.tuples(
    st.just("virtual"),
    st.sampled_from(URLS),
    st.sampled_from([None, "e", "f"]),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 1),
)
plain = st.one_of(packed, inlined, virtual, st.just(("deleted",)))


def _references(values: list[tuple[Any, ...]], prefixes: list[str], packs: list[bytes]) -> References:
    """Build a set whose tables are in another order, and cut in other ways, than another one's."""
    tables: list[Locations] = []
    rows: list[tuple[int, int, int]] = []
    blob = b"?" * len(packs)
    for value in values:
        if value[0] == "pack":
            rows.append((packs.index(value[1]), value[2], value[3]))
        elif value[0] == "inline":
            rows.append((INLINE, len(blob), len(value[1])))
            blob += value[1]
        elif value[0] == "virtual":
            _, url, etag, modified, offset, length = value
            prefix = next((prefix for prefix in prefixes if url.startswith(prefix)), "")
            rows.append((VIRTUAL + len(tables), offset, length))
            tables.append(locations_from_urls([url], [etag], [modified], prefix))
        else:
            rows.append((DELETED, 0, 0))
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    locations = concat_locations(tables) if tables else NO_LOCATIONS
    coords = np.arange(len(rows), dtype=np.int64)[:, np.newaxis]
    return References(coords, columns[:, 0], columns[:, 1], columns[:, 2], tuple(packs), locations, blob)


@given(st.lists(st.one_of(st.tuples(plain, plain), plain.map(lambda value: (value, value)))))
def test_references_are_equal_where_all_that_they_say_is(pairs: list[tuple[Any, Any]]) -> None:
    ours = _references([one for one, _ in pairs], ["s3://a/"], PACKS)
    theirs = _references([other for _, other in pairs], ["s3://a/b/", "s3://"], [*PACKS[::-1], b"z" * ID_BYTES])
    assert equal_references(ours, theirs).tolist() == [one == other for one, other in pairs]


def test_many_texts_are_compared_a_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "_BATCH", 10)
    ours = [("inline", b"%06d" % i) for i in range(40)]
    theirs = [("inline", b"%06d" % (i + (i in (0, 13, 39)))) for i in range(40)]
    equal = equal_references(_references(ours, [], PACKS), _references(theirs, [], PACKS))
    assert np.flatnonzero(~equal).tolist() == [0, 13, 39]
