"""Listings of backends of either order come out the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.storage import ObjectInfo
from arraystore.storage.keys import merge_ranges
from arraystore.storage.listing_order import Reorder, beyond, safe_offset

NAMES = st.text("ab-.0~", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
KEYS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=25, unique=True)


def without_files_that_are_directories(keys: list[str]) -> list[str]:
    return [key for key in keys if not any(other.startswith(key + "/") for other in keys)]


def by_parts(key: str) -> list[str]:
    return key.split("/")


def listed(keys: list[str], prefix: str, start_after: str, hierarchical: bool) -> list[str]:
    """List as the object store backend does, on a store that has these keys."""
    directory = prefix[: prefix.rfind("/") + 1]
    offset = safe_offset(prefix, start_after)
    order = by_parts if hierarchical else str
    below = sorted((key for key in keys if key.startswith(directory)), key=order)
    # A store that keeps directories inside leaves out the directory that the offset names, with all that is in it.
    given = [key for key in below if not offset or (order(key) > order(offset) and not key.startswith(offset + "/"))]
    found: list[str] = []
    reorder = Reorder(directory)
    for key in given:
        found += [info.key for info in reorder.add(ObjectInfo(key, 0))]
        if beyond(key, prefix):
            break
    found += [info.key for info in reorder.rest()]
    return [key for key in found if key.startswith(prefix) and key > start_after]


@given(KEYS, st.data(), st.booleans())
def test_any_listing_is_complete_and_in_order(keys: list[str], data: st.DataObject, hierarchical: bool) -> None:
    keys = without_files_that_are_directories(keys)
    texts = st.one_of(st.just(""), NAMES, st.sampled_from([*keys, ""]).flatmap(_starts))
    prefix, start_after = data.draw(texts), data.draw(texts)
    expected = sorted(key for key in keys if key.startswith(prefix) and key > start_after)
    assert listed(keys, prefix, start_after, hierarchical) == expected


def _starts(key: str) -> st.SearchStrategy[str]:
    return st.integers(0, len(key)).map(lambda length: key[:length])


def test_a_log_is_listed_from_where_one_is() -> None:
    assert safe_offset("refs/branch/v1.0-rc/", "refs/branch/v1.0-rc/00000120") == "refs/branch/v1.0-rc/0000012.~"
    assert safe_offset("refs/branch/v1.0-rc/", "refs/branch/v1.0-rc/00000127") == "refs/branch/v1.0-rc/00000126~"
    assert safe_offset("chunks/abc", "") == "chunks/abb~"
    assert safe_offset("chunks/", "") == ""


def test_flat_listings_are_not_held_back() -> None:
    reorder = Reorder("refs/")
    for number in range(5):
        assert [info.key for info in reorder.add(ObjectInfo(f"refs/{number}", 0))] == [f"refs/{number}"]


def test_a_listing_in_no_order_is_refused() -> None:
    reorder = Reorder("")
    assert list(reorder.add(ObjectInfo("b", 0)))
    with pytest.raises(ValueError, match="'a' came after 'b'"):
        list(reorder.add(ObjectInfo("a", 0)))


RANGES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)).map(lambda pair: (pair[0], pair[0] + pair[1])))


@given(RANGES, st.integers(0, 10))
def test_merged_ranges_cover_exactly_what_they_should(ranges: list[tuple[int, int]], gap: int) -> None:
    merged = merge_ranges(ranges, gap)
    covered = {byte for start, stop in merged for byte in range(start, stop)}
    wanted = {byte for start, stop in ranges for byte in range(start, stop)}
    assert wanted <= covered
    assert all(right[0] - left[1] > gap for left, right in itertools.pairwise(merged))
    assert len(covered - wanted) <= gap * max(0, len({r for r in ranges if r[0] < r[1]}) - 1)
