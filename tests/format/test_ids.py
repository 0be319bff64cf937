"""Identifiers: their order is the order of time, in bytes and in text, and each text is one identifier."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore._format.ids import IdSource, all_different, id_from_text, id_time, id_to_text
from arraystore.errors import InvalidInputError
from tests.format.values import ids
from tests.storage.workers import call_in_process

LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@given(ids, ids)
def test_text_leads_back_to_the_id_and_sorts_as_it_does(a: bytes, b: bytes) -> None:
    assert id_from_text(id_to_text(a)) == a
    assert len(id_to_text(a)) == 20
    assert (id_to_text(a) < id_to_text(b)) == (a < b)


@given(st.text(LETTERS + "ILOUiloua!é ", max_size=22) | st.text(max_size=22))
def test_a_text_is_an_id_only_in_the_one_form_that_is_written(text: str) -> None:
    try:
        found = id_from_text(text)
    except InvalidInputError:
        assert len(text) != 20 or set(text) - set(LETTERS) or text[0] > "1"
    else:
        assert id_to_text(found) == text


@pytest.mark.parametrize("value", [None, 5, b"0" * 20, "", "0" * 19, "0" * 21, "2" + "0" * 19, "o" * 20, "٠" * 20])
def test_what_is_no_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidInputError):
        id_from_text(value)


@given(st.lists(st.integers(-5, (1 << 48) + 5), min_size=1, max_size=20), st.binary(min_size=6, max_size=6))
def test_ids_of_one_source_increase_whatever_the_clock_does(clock: list[int], random: bytes) -> None:
    ticks = iter(clock)
    bumps = iter(range(1, 1000))

    def drawn(count: int) -> bytes:
        return (int.from_bytes(random, "big") ^ next(bumps)).to_bytes(count, "big")

    source = IdSource(lambda: min(next(ticks), (1 << 48) - 100), drawn)
    found = [source() for _ in clock]
    assert found == sorted(set(found))
    assert id_time(found[0]) == min(max(clock[0], 0), (1 << 48) - 100)


def test_the_time_of_an_id_is_its_first_six_bytes() -> None:
    source = IdSource(lambda: 1_700_000_000_123, lambda count: b"\xab" * count)
    assert source() == (1_700_000_000_123).to_bytes(6, "big") + b"\xab" * 6
    assert id_time(source()) == 1_700_000_000_124  # the same instant and bytes again: a millisecond later


def test_a_source_gives_different_ids_to_threads_and_survives_pickling() -> None:
    source: Callable[[], bytes] = IdSource()
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.extend(source() for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 2000
    assert pickle.loads(pickle.dumps(source))() > min(found)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_ids_while_a_thread_of_its_parent_was_making_one() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def clock() -> int:
        if threading.current_thread() is slow:
            begun.set()
            go_on.wait()
        return 5

    source = IdSource(clock)
    slow = threading.Thread(target=source)
    slow.start()
    begun.wait()  # now that thread holds the lock of the source
    try:
        found = call_in_process("fork", source)
    finally:
        go_on.set()
        slow.join()
    assert id_time(found) == 5


def test_a_source_is_not_kept_alive_for_the_sake_of_forks() -> None:
    source = IdSource()
    seen = weakref.ref(source)
    del source
    gc.collect()
    assert seen() is None


@given(st.lists(ids | st.sampled_from([bytes(12), bytes(11) + b"\1", b"\1" + bytes(11)]), max_size=6))
def test_equal_ids_are_noticed(found: list[bytes]) -> None:
    assert all_different(b"".join(found)) == (len(set(found)) == len(found))
