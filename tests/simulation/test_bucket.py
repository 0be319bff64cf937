"""The simulated bucket: what each request does, and how processes get at it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import InvalidKeyError, ObjectNotFoundError, StorageError
from arraystore.simulation.bucket import PAGE, Bucket


def test_only_the_first_of_two_conditional_writes_succeeds() -> None:
    bucket = Bucket()
    assert bucket.put_if_absent("a", b"1") == "written"
    assert bucket.put_if_absent("a", b"2") == "exists"
    assert bucket.put_if_absent("a", b"1") == "same"
    assert bucket.get("a") == b"1"


def test_objects_that_are_missing_are_so_for_every_operation() -> None:
    bucket = Bucket()
    for ask in (bucket.get, bucket.info, lambda key: bucket.get_ranges(key, [(0, 1)])):
        with pytest.raises(ObjectNotFoundError):
            ask("a")
    bucket.delete(["a"])


def test_ranges_are_exact() -> None:
    bucket = Bucket()
    bucket.put("a", b"0123456789")
    assert bucket.get_ranges("a", [(8, 10), (0, 2)]) == [b"89", b"01"]
    with pytest.raises(StorageError, match="has 10 bytes"):
        bucket.get_ranges("a", [(8, 11)])


def test_the_state_of_an_object_tells_each_of_its_values_apart() -> None:
    bucket = Bucket(clock=iter((1.0, 2.0, 3.0)).__next__)
    states = []
    for data in (b"one", b"two", b"one"):
        bucket.put("a", data)
        states.append(bucket.info("a"))
    assert [(info.size, info.modified) for info in states] == [(3, 1.0), (3, 2.0), (3, 3.0)]
    assert states[0].etag == states[2].etag != states[1].etag is not None


def test_unsafe_keys_are_refused() -> None:
    bucket = Bucket()
    with pytest.raises(InvalidKeyError):
        bucket.put("../a", b"")


def test_a_stale_read_gives_an_earlier_value_or_none() -> None:
    bucket = Bucket()
    for value in (b"1", b"2", b"3"):
        bucket.put("hints/main", value)
    seen: set[bytes | None] = set()
    rng = random.Random(0)
    for _ in range(100):
        try:
            seen.add(bucket.get_stale("hints/main", rng))
        except ObjectNotFoundError:
            seen.add(None)
    assert seen == {b"1", b"2", None}


keys = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join)


@given(st.lists(st.tuples(st.booleans(), keys)), st.sampled_from(["", "a", "a/", "a/b", "b/a"]), keys)
def test_listings_are_complete_and_in_order(steps: list[tuple[bool, str]], prefix: str, after: str) -> None:
    bucket, expected = Bucket(), set[str]()
    for put, key in steps:
        if put:
            bucket.put(key, b"")
            expected.add(key)
        else:
            bucket.delete([key])
            expected.discard(key)
    wanted = sorted(key for key in expected if key.startswith(prefix) and key > after)
    assert [info.key for info in bucket.list(prefix, after)] == wanted
    assert bucket.keys(prefix, after, 2) == wanted[:2]


def test_a_page_is_full_or_the_last() -> None:
    bucket = Bucket()
    for number in range(PAGE + 1):
        bucket.put(f"a/{number:06}", b"")
    assert len(bucket.list("a/", "")) == PAGE
    assert [info.key for info in bucket.list("a/", f"a/{PAGE - 1:06}")] == [f"a/{PAGE:06}"]
