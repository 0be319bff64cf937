"""Whatever bytes or text come from elsewhere: a valid value or the documented refusal, quickly, in little memory."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arraystore.errors import FormatError
from tests.format import values
from tests.format.make_golden import BRANCH
from tests.fuzz.engine import CORPUS, NAMES, corpus_of, fuzz, targets
from tests.fuzz.mutate import change_body, envelope, open_envelope
from tests.fuzz.target import BrokenPromiseError, Target, body_trees

SLOW = {
    "repository": 100,
    "merge": 200,
    "listing": 75,
    "text-store-key": 250,
    "text-virtual-url": 250,
    "text-url": 500,
}
"""Trials of targets of which one takes milliseconds; the others take about a tenth of one."""

TRIALS = 2000


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("name", NAMES)
def test_a_target_keeps_its_promise(name: str, fuzz_minutes: float, pytestconfig: pytest.Config) -> None:
    target = targets()[name]
    if fuzz_minutes:
        seconds = 60 * fuzz_minutes / len(NAMES)
        fuzz(target, secrets.randbits(32), seconds=seconds, findings=pytestconfig.rootpath / "fuzz-findings")
        return
    report = fuzz(target, 1, trials=SLOW.get(name, TRIALS))
    assert 0 < report.accepted < report.trials, "inputs of one kind only: the changes are too wild, or too tame"


@pytest.mark.parametrize("name", NAMES)
def test_what_once_broke_a_promise_breaks_none_any_more(name: str) -> None:
    for data in corpus_of(targets()[name]):
        targets()[name].check(data, memory=True)


def test_every_target_has_a_name() -> None:
    assert tuple(targets()) == NAMES


def test_every_input_that_is_kept_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(NAMES)


# -- values of every form, changed by chance that shrinks ---------------------------------------------

STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "object-repository": values.repositories,
    "object-manifest": values.manifests(),
    "object-transaction": values.logs(),
    "object-checkpoint": values.checkpoints(),
    "object-hint": values.hints,
    "object-changes": values.payloads(),
    "object-collection": values.collections,
    "object-survivors": values.survivors().map(lambda found: replace(found, branch=BRANCH)),
}


@pytest.mark.parametrize("name", STRATEGIES)
@given(data=st.data(), rng=st.randoms(use_true_random=False))
def test_any_valid_value_may_be_changed(name: str, data: st.DataObject, rng: Random) -> None:
    target = targets()[name]
    assert target.encode is not None
    valid = target.encode(data.draw(STRATEGIES[name]))
    assert target.check(valid).accepted
    opened = open_envelope(valid)
    assert opened is not None
    target.check(envelope(opened[0], change_body(rng, opened[1], body_trees([valid]))))


# -- that the promises can be broken ----------------------------------------------------------------


def _raising(error: Exception) -> Target:
    def decode(data: bytes) -> bytes:
        if data:
            raise error
        return data

    return Target("broken", [b"", b"x"], decode)


def test_another_error_than_a_refusal_breaks_the_promise() -> None:
    assert not _raising(FormatError("x", "refused")).check(b"x").accepted
    with pytest.raises(BrokenPromiseError, match="KeyError"):
        _raising(KeyError("x")).check(b"x")


def test_an_input_that_breaks_a_promise_is_kept(tmp_path: Path) -> None:
    with pytest.raises(BrokenPromiseError, match=r"python -m tests\.fuzz --target broken"):
        fuzz(_raising(KeyError("x")), 1, trials=5, findings=tmp_path)
    assert [path.read_bytes() for path in tmp_path.glob("broken/*")] == [b"x"]


def test_a_value_that_is_written_as_another_one_breaks_the_promise() -> None:
    with pytest.raises(BrokenPromiseError, match="something else"):
        Target("changed", [b"x"], bytes, lambda value: value + b"x").check(b"x")


def test_a_few_bytes_that_unfold_to_many_break_the_promise() -> None:
    with pytest.raises(BrokenPromiseError, match="200 MiB"):
        Target("bomb", [b"x"], lambda data: bytearray(200 << 20)).check(b"x", memory=True)


def test_the_same_seed_tries_the_same_inputs() -> None:
    target = targets()["object-hint"]
    first, second = [fuzz(target, 5, trials=500) for _ in range(2)]
    assert (first.accepted, first.answers) == (second.accepted, second.answers)
    assert fuzz(target, 6, trials=500).accepted != first.accepted
