"""A result that could not be computed leaves the session as it was, with what it was to replace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import InvalidInputError, Repository, Session, in_memory_storage
from arraystore.transforms import ThreadsEngine, coarsen, histogram, quantile, reduce_array

VALUES = np.arange(24.0).reshape(4, 6)


class Broken(ThreadsEngine):
    """An engine whose tasks fail."""

    def run_forks(self, *arguments: Any, **named: Any) -> Any:
        raise ZeroDivisionError


@pytest.fixture
def session() -> Session:
    """An array, and one at the place of results, both committed, with a group of arrays beside them."""
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    for path in ("a", "old", "group/inner/old"):
        array = zarr.create_array(
            session.store, name=path, shape=VALUES.shape, chunks=(2, 3), dtype="f8", dimension_names=("y", "x")
        )
        array[...] = VALUES
    session.commit("made")
    return repo.writable_session("main")


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "coarsen": partial(coarsen, factors={"x": 2}),
    "reduce_array": partial(reduce_array, function="mean", dims="x"),
    "histogram": partial(histogram, edges=[0.0, 12.0, 24.0], dims="x"),
    "exact quantile": partial(quantile, quantiles=0.5, dims="x"),
    "quantile": partial(quantile, quantiles=0.5),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("target", ["new", "deep/new", "old", "group"])
def test_a_failed_transform_leaves_what_it_was_to_replace(session: Session, transform: str, target: str) -> None:
    before = repr(session.status())
    with pytest.raises(ZeroDivisionError):
        TRANSFORMS[transform](session, "a", target, overwrite=True, engine=Broken())
    assert repr(session.status()) == before
    assert not session.has_uncommitted_changes
    members = sorted(name for name, _ in zarr.open_group(session.store, mode="r").members(None))
    assert members == ["a", "group", "group/inner", "group/inner/old", "old"]
    for path in ("old", "group/inner/old"):
        np.testing.assert_array_equal(zarr.open_array(session.store, path=path, mode="r")[...], VALUES)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    ("source", "target", "message"),
    [("group/inner/old", "group", "group 'group'"), ("a", "/", "group ''"), ("a", "old/new", "below the array 'old'")],
)
def test_a_result_replaces_no_group_of_its_source_and_no_array_above(
    session: Session, transform: str, source: str, target: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        TRANSFORMS[transform](session, source, target, overwrite=True)
    assert not session.has_uncommitted_changes


def test_a_result_has_no_dimension_twice(session: Session) -> None:
    for name in "bin", "quantile":
        zarr.create_array(session.store, name=name, shape=(4, 6), dtype="f8", dimension_names=(name, "x"))
    for transform in (
        partial(histogram, source="bin", edges=[0, 1]),
        partial(quantile, source="quantile", quantiles=[1]),
    ):
        with pytest.raises(InvalidInputError, match="the result would have twice"):
            transform(session, target="new", dims="x")
        transform(session, target="old", overwrite=True)
