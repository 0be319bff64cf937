"""Results of workers are not trusted: what is none of the task is an error, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from arraystore import Repository, Session
from arraystore.errors import FormatError
from arraystore.transforms import ThreadsEngine, quantile, rechunk, reduce_array, transform_chunks
from arraystore.transforms.sketch import QuantileSketch
from tests.transforms.conftest import put

Change = Callable[[dict[str, Any]], Any]


class Lying(ThreadsEngine):
    """Threads whose tasks return something else."""

    def __init__(self, change: Change) -> None:
        super().__init__(1)
        self._change = change

    def run_forks(self, session: Any, work: Any, shares: Any, **options: Any) -> Any:
        def lie(fork: Any, share: Any) -> Any:
            return self._change(dict(work(fork, share)))

        return super().run_forks(session, lie, shares, **options)


COUNTS: dict[str, Change] = {
    "text": lambda report: report | {"nbytes": "1"},
    "negative": lambda report: report | {"nbytes": -1},
    "a fraction": lambda report: report | {"nbytes": 0.5},
    "no list": lambda report: report | {"parts": "abc"},
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_are_none_leave_the_session_as_it_was(session: Session, name: str) -> None:
    put(session, "a", np.arange(6), (2,))
    put(session, "b", np.zeros(6), (2,))
    with pytest.raises(FormatError, match="result of a task"):
        transform_chunks(session, "a", "b", lambda a: a + 1.0, engine=Lying(COUNTS[name]))
    assert not session.read("b").any()


def test_a_rechunking_with_wrong_counts_commits_nothing(repo: Repository) -> None:
    session = repo.writable_session("main")
    put(session, "a", np.arange(6), (2,))
    tip = session.commit("a")
    with pytest.raises(FormatError, match="result of a task"):
        rechunk(repo, "a", 3, engine=Lying(lambda report: {"nbytes": None}))
    assert repo.lookup_branch("main") == tip
    assert rechunk(repo, "a", 3).resumed


def _arrays(change: Callable[[list[Any]], Any]) -> Change:
    """Return a change of the arrays of each partial result."""

    def lie(report: dict[str, Any]) -> Mapping[str, Any]:
        return report | {"parts": [[box, piece, change(arrays)] for box, piece, arrays in report["parts"]]}

    return lie


def _zeros(kind: str, *shape: int) -> list[Any]:
    return [kind, list(shape), np.zeros(shape, kind).tobytes()]


PARTS: dict[str, Change] = {
    "none": lambda report: report | {"parts": []},
    "numbers": lambda report: report | {"parts": [0]},
    "another box": lambda report: report | {"parts": [[box + 1, *rest] for box, *rest in report["parts"]]},
    "twice": lambda report: report | {"parts": 2 * report["parts"]},
    "one array less": _arrays(lambda arrays: arrays[:-1]),
    "one array more": _arrays(lambda arrays: [*arrays, arrays[0]]),
    "an array that would broadcast": _arrays(lambda arrays: [_zeros("<f8") for _ in arrays]),
    "another shape": _arrays(lambda arrays: [_zeros("<f8", 7) for _ in arrays]),
    "another type": _arrays(lambda arrays: [["|b1", *_zeros("|b1", *arrays[0][1])[1:]] for _ in arrays]),
    "objects": _arrays(lambda arrays: [["|O", [1], b"12345678"]]),
    "fields": _arrays(lambda arrays: [["<f4,<i4", [1], b"12345678"] for _ in arrays]),
    "no type": _arrays(lambda arrays: [["", [1], b"12345678"] for _ in arrays]),
    "endless": _arrays(lambda arrays: [["<f8", [1 << 70], b"12345678"] for _ in arrays]),
}


@pytest.mark.parametrize("function", ["mean", "max", "quantile"])
@pytest.mark.parametrize("name", PARTS)
def test_partial_results_that_are_none_are_an_error(session: Session, function: str, name: str) -> None:
    put(session, "a", np.arange(48.0).reshape(12, 4), (3, 4), ("t", "x"))
    engine = Lying(PARTS[name])
    computed = {
        "mean": partial(reduce_array, session, "a", "out", "mean", "t", memory=1, engine=engine),
        "max": partial(reduce_array, session, "a", "out", "max", "t", memory=1, engine=engine),
        "quantile": partial(quantile, session, "a", "out", 0.5, memory=1, engine=engine),
    }
    with pytest.raises(FormatError, match="partial result of a task"):
        computed[function]()
    assert session.hierarchy.node("out") is None


@pytest.mark.parametrize(
    ("values", "levels", "totals"),
    [
        ([2.0, 1.0], [0, 0], [0, 2]),
        ([1.0, 2.0], [0, -1], [0, 2]),
        ([1.0, 2.0], [0, 63], [0, 2]),
        ([1.0, 2.0], [0, 1], [0, 2]),
        ([1.0, 2.0], [0, 0], [-1, 2]),
        ([1.0, 2.0], [0], [0, 2]),
        ([1.0, 2.0], [0, 0], [2]),
    ],
)
def test_a_sketch_that_is_none_is_refused(values: list[float], levels: list[int], totals: list[int]) -> None:
    sketch = QuantileSketch((0.5,))
    empty = sketch.reduce(np.empty(0), None, (0,))
    assert sketch.accepts(sketch.reduce(np.array([3.0, np.nan, 1.0]), None, (0,)), empty)
    assert sketch.accepts(sketch.reduce(np.arange(40_000.0), None, (0,)), empty)
    parts = np.array(values), np.array(levels, dtype=np.int64), np.array(totals, dtype=np.int64)
    assert not sketch.accepts(parts, empty)


@pytest.mark.parametrize("dtype", [">f4", ">i2", "bool"])
@pytest.mark.parametrize("function", ["max", "sum", "std"])
def test_partial_results_of_any_type_are_combined(session: Session, dtype: str, function: str) -> None:
    values = (np.arange(48).reshape(12, 4) % 7).astype(dtype)
    put(session, "a", values, (3, 4), ("t", "x"))
    reduce_array(session, "a", "whole", function, "t")
    reduce_array(session, "a", "pieces", function, "t", memory=1)
    np.testing.assert_allclose(session.read("whole"), session.read("pieces"), rtol=1e-6)
