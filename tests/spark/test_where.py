"""Predicates leave out chunks and rows exactly: against numpy, without Spark."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from arraystore import InvalidInputError, Repository, RepositoryConfig, in_memory_storage
from arraystore.spark.reading.frame_plan import plan_frame
from arraystore.spark.reading.predicate import parse_predicate
from arraystore.spark.reading.read_dataframe import ReadPlan, plan_read
from arraystore.storage import CountingStorage

CONFIG = RepositoryConfig(chunk_statistics=True, inline_chunk_threshold_bytes=0)
COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def rows_of(plan: ReadPlan) -> list[dict[str, Any]]:
    rows = [row for task in range(plan.tasks) for batch in plan.batches(task) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["x"])


def holds(value: Any, sign: str, literal: float) -> bool:
    """Compare as Spark does: null satisfies nothing, NaN is the greatest number."""
    if value is None:
        return False
    if isinstance(value, float) and math.isnan(value):
        return sign in (">", ">=", "!=")
    return bool(COMPARE[sign](value, literal))


VALUES = {
    "f4": [0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, 3e38],
    "f8": [0.0, 1.5, -2.0, math.nan, 2.0**53, 1e300],
    "i2": [0, 1, -2, 32767, -32768],
    "i8": [0, 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "u8": [0, 1, 2**53 + 1, 2**63, 2**64 - 1],
    "b1": [False, True],
}
LITERALS = [
    "0",
    "-2",
    "1",
    "1.5",
    "0.5",
    "-0.0",
    "9007199254740993",
    "9223372036854775807",
    "1e300",
    "3e38",
    "1e40",
    "-1e-9",
    "1e310",
    "-2e320",
]
ATTRIBUTES: list[dict[str, Any]] = [
    {}, {"_FillValue": 1}, {"scale_factor": -0.5, "add_offset": 10.0}, {"scale_factor": 0.0}, {"scale_factor": 1e308},
]  # fmt: skip


@settings(max_examples=settings().max_examples * 2)
@given(st.data())
def test_rows_are_those_that_a_filter_of_all_rows_would_leave(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(sorted(VALUES)))
    values = data.draw(st.lists(st.sampled_from(VALUES[dtype]), min_size=1, max_size=12))
    attributes = data.draw(st.sampled_from(ATTRIBUTES)) if dtype != "b1" else {}
    sign, literal = data.draw(st.sampled_from(sorted(COMPARE))), data.draw(st.sampled_from(LITERALS))
    decode, skip = data.draw(st.booleans()), data.draw(st.booleans())
    session = Repository.create(in_memory_storage(), config=CONFIG).writable_session("main")
    fill = data.draw(st.sampled_from(VALUES[dtype]))
    array = zarr.create_array(
        session.store, name="a", shape=(len(values) + 3,), chunks=(2,), dtype=dtype, fill_value=fill,
        dimension_names=["x"], attributes=attributes,
    )  # fmt: skip
    array[: len(values)] = np.array(values, dtype=dtype)
    if dtype in ("f4", "f8", "i2", "i8"):
        array[1:2] = np.array([VALUES[dtype][1]], dtype=dtype)
    session.commit("values")
    options: dict[str, Any] = {"decode": decode, "skip_missing": skip}
    exact = int(literal) if literal.lstrip("-").isdigit() else float(literal)
    with np.errstate(over="ignore"):
        every = rows_of(plan_read(session, "a", **options))
        wanted = [row for row in every if holds(shown(row["a"]), sign, exact)]
        assert repr(rows_of(plan_read(session, "a", where=f"a {sign} {literal}", **options))) == repr(wanted)


@pytest.mark.parametrize(("where", "count"), [("a < 1e309", 1), ("a > -1e309", 3), ("a = 1e309", 1), ("a > 1e309", 1)])
def test_numbers_beyond_the_greatest_double_are_infinite(where: str, count: int) -> None:
    session = Repository.create(in_memory_storage(), config=CONFIG).writable_session("main")
    zarr.create_array(session.store, name="a", data=np.array([1.0, math.inf, math.nan]), dimension_names=["x"])
    session.commit("values")
    assert len(rows_of(plan_read(session, "a", where=where))) == count


def shown(value: Any) -> Any:
    """Return a value of a row as a number that Python compares exactly."""
    return int(value) if value is not None and not isinstance(value, float) else value


def cube() -> tuple[CountingStorage, Repository]:
    storage = CountingStorage(in_memory_storage())
    repo = Repository.create(storage, config=CONFIG.merge(own_object_threshold_bytes=16))
    session = repo.writable_session("main")
    for name, chunks in ("t2m", (2, 4)), ("cloud", (8, 2)):
        array = zarr.create_array(
            session.store, name=name, shape=(8, 8), chunks=chunks, dtype="f4", fill_value=math.nan,
            dimension_names=["y", "x"],
        )  # fmt: skip
        values = np.arange(64, dtype="f4").reshape(8, 8)
        array[...] = values + 280 if name == "t2m" else values % 8 / 8
    session.commit("cube")
    return storage, repo


def test_chunks_in_which_nothing_can_hold_are_not_read() -> None:
    storage, _ = cube()
    session = Repository.open(storage).readonly_session("main")
    plan = plan_read(session, ["t2m", "cloud"], where="t2m > 335 AND cloud >= 0.75", chunks_per_task=1)
    assert len(plan.rows.plan.chunks) == 1
    storage.reset()
    rows = rows_of(plan)
    assert len({key for _, key in storage.log if key.startswith("chunks/")}) == 3  # of eight
    assert [(row["y"], row["x"]) for row in rows] == [(7, 6), (7, 7)]


def test_a_predicate_chooses_chunks_where_rows_are_chunks() -> None:
    _, repo = cube()
    session = repo.readonly_session("main")
    assert len(plan_frame(session, "t2m", where="t2m > 335").chunks) == 2
    assert not plan_read(session, "t2m", where="t2m < 0", layout="chunks").tasks


def test_without_statistics_rows_are_the_same() -> None:
    _, repo = cube()
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t2m")[0, 0] = 1000.0
    plan = plan_read(session, "t2m", where="t2m > 342")  # one of the chunks is not committed
    assert [(row["y"], row["x"], row["t2m"]) for row in rows_of(plan)] == [(0, 0, 1000.0), (7, 7, 343.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "which is empty"),
        ("a", "which ends too early"),
        ("a > 1 AND", "at 'AND'"),
        ("a > 1 OR a < 0", "at 'OR'"),
        ("NOT a > 1", "not understood"),
        ("a BETWEEN 1 AND 2", "not understood"),
        ("CASE WHEN a > 1 AND a > 2 THEN 1 END > 0", "not understood"),
        ("a > 1 -- a", "not understood"),
        ("a > 'x'", "not understood"),
        ("a > 1; DROP TABLE a", "not understood"),
        ("a > 1x", "not understood"),
        ("a > 1e99999", "more digits"),
        ("a > " + "9" * 400, "more digits"),
        ("b > 1", "the columns are a"),
        ("x > 1", "select along it with sel"),
    ],
)
def test_predicates_that_are_not_understood_are_refused(text: str, said: str) -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["x"])
    with pytest.raises(InvalidInputError, match=said):
        plan_read(session, "a", where=text)


def test_predicates_of_labels_and_text_are_refused() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="M8[s]", dimension_names=["x"])
    with pytest.raises(InvalidInputError, match="only numbers and truth values"):
        plan_read(session, "a", where="a > 1")
    with pytest.raises(InvalidInputError, match="must be a string, not int"):
        plan_read(session, "a", where=1)


def test_names_may_be_quoted_and_operators_spelt_as_in_sql() -> None:
    first, second, third = parse_predicate("`a ``b` <> -1.5e2 and c == TRUE And d>=.5")
    assert (first.column, first.operator, first.value) == ("a `b", "!=", -150)
    assert (second.column, second.operator, second.value) == ("c", "=", 1)
    assert (third.operator, float(third.value)) == (">=", 0.5)
