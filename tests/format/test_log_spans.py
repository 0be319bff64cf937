"""What records carry: any span of a log is read in a few requests."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._format.history import page_span
from arraystore._format.record import Record, decode_record, encode_record, first_carried
from arraystore._log.spans import carriers, previous_bodies
from arraystore.errors import FormatError

LOG = {number: b"body %d" % number for number in range(1400)}


def record(number: int) -> Record:
    return Record("main", number, LOG[number], (), previous_bodies(number, LOG) or ())


def test_a_record_carries_what_came_since_the_last_multiple_of_8_or_64_or_512() -> None:
    for number in range(1, 1400):
        skip = 8 if number % 8 else 64 if number % 64 else 512
        first = first_carried(number)
        assert first - 1 == (number - 1) // skip * skip
        assert number - first < skip
        assert min(record(number).bodies()) == first
    assert first_carried(0) == 0
    assert record(0).bodies() == {0: LOG[0]}


@given(st.integers(0, 1399), st.integers(0, 1399))
def test_any_span_is_read_in_three_requests_and_one_for_each_512(a: int, b: int) -> None:
    first, last = min(a, b), max(a, b)
    numbers = carriers(first, last)
    assert len(numbers) <= 3 + math.ceil((last - first + 1) / 512)
    assert len(numbers) <= 2 + math.ceil((last - first + 1) / 64)
    bodies: dict[int, bytes] = {}
    for number in numbers:
        bodies |= record(number).bodies()
    assert {n: bodies[n] for n in range(first, last + 1)} == {n: LOG[n] for n in range(first, last + 1)}
    assert max(bodies) == last


@given(st.integers(0, 1 << 39), st.integers(0, 5000))
def test_spans_far_down_a_log_are_as_cheap(first: int, length: int) -> None:
    assert len(carriers(first, first + length)) <= 3 + math.ceil((length + 1) / 512)


def test_carried_bodies_are_byte_for_byte_those_of_the_records() -> None:
    for number in (0, 1, 7, 8, 63, 64, 65, 128, 512, 576, 1399):
        written = record(number)
        assert decode_record("test", encode_record(written), "main", number, bytes(12)) == written
        for branch, sequence in (("other", number), ("main", number + 1)):
            with pytest.raises(FormatError, match="holds record"):
                decode_record("test", encode_record(written), branch, sequence, bytes(12))


@pytest.mark.parametrize("number", [1, 8, 9, 64, 65])
def test_a_record_that_carries_too_few_or_too_many_is_refused(number: int) -> None:
    for previous in (LOG[0],) * (number - first_carried(number) + 1), ():
        if len(previous) != number - first_carried(number):
            data = encode_record(Record("main", number, b"x", (), tuple(previous)))
            with pytest.raises(FormatError, match="carries"):
                decode_record("test", data, "main", number, bytes(12))


def test_a_body_above_its_limit_is_refused_on_both_sides() -> None:
    with pytest.raises(FormatError, match="16385 bytes"):
        encode_record(Record("main", 0, bytes(16 * 1024 + 1)))


def test_pages_of_each_level_cover_every_record_once() -> None:
    for level, size in ((1, 64), (2, 4096), (3, 262144)):
        assert page_span(level, 0) == (0, size)
        for index in range(1, 5):
            assert page_span(level, index) == (page_span(level, index - 1)[1] + 1, size * (index + 1))
        assert page_span(level + 1, 3)[0] == page_span(level, 3 * 64)[0]
        assert page_span(level + 1, 3)[1] == page_span(level, 3 * 64 + 63)[1]
