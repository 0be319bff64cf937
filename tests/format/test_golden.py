"""Objects written by earlier releases say what they said; what is written now has the same bodies, byte for byte."""

from __future__ import annotations

import pytest

from arraystore._format.envelope import Kind, decode_object
from arraystore._format.record import Birth, Commit, Rewrite, decode_body, decode_note
from tests.format.make_golden import (
    BRANCH,
    DIRECTORY,
    Sample,
    a_log,
    samples,
    some_layers,
    the_bodies,
    the_lifecycle,
)
from tests.format.values import plain

SAMPLES = list(samples())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_a_golden_file_decodes_to_exactly_its_value(sample: Sample) -> None:
    assert plain(sample.decode(sample.path.read_bytes())) == plain(sample.value)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_a_value_encodes_to_the_body_of_its_golden_file(sample: Sample) -> None:
    golden = decode_object(sample.name, sample.kind, sample.path.read_bytes())
    assert decode_object(sample.name, sample.kind, sample.encode(sample.value)) == golden
    read = sample.decode(sample.path.read_bytes())
    assert decode_object(sample.name, sample.kind, sample.encode(read)) == golden


def test_there_is_a_file_for_each_sample_and_a_sample_for_each_kind_that_is_written() -> None:
    assert {sample.path for sample in SAMPLES} == set(DIRECTORY.iterdir())
    assert {sample.kind for sample in SAMPLES} == set(Kind)


def test_the_entries_in_golden_records_decode_to_exactly_their_values() -> None:
    record = next(sample for sample in SAMPLES if sample.name == "record_64").value
    for number in range(1, 65):
        entry = decode_body("test", record.bodies()[number], BRANCH, number)
        assert isinstance(entry, Commit)
        assert decode_note("test", entry.transactions[0].note)[1] == {"key": [1, 2.5, None, True, {"é": "text"}]}
    bodies = the_bodies()
    assert isinstance(decode_body("test", bodies[0], BRANCH, 0), Birth)
    several = decode_body("test", bodies[65], BRANCH, 65)
    assert isinstance(several, Commit)
    assert [t.log for t in several.transactions][:2] == [a_log(), 3]
    rewrite = decode_body("test", bodies[66], BRANCH, 66)
    assert isinstance(rewrite, Rewrite)
    assert rewrite.replacements[0].added == some_layers(BRANCH, 66)[1:]
    for number, entry in the_lifecycle().items():
        assert decode_body("test", bodies[number], BRANCH, number) == entry
