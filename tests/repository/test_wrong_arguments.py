"""Arguments of the wrong type are refused by name, before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import zarr

from arraystore import InvalidInputError, Repository, Session, in_memory_storage
from arraystore.copying import clone_repository, copy_branch, export_zarr, materialize
from arraystore.transforms import coarsen, rechunk, reduce_array
from arraystore.virtual import from_kerchunk


@pytest.mark.parametrize("method", [Repository.create, Repository.open, Repository.open_or_create, Repository.exists])
@pytest.mark.parametrize("wrong", ["s3://bucket/prefix", None, 5])
def test_what_is_no_storage_is_refused_with_the_way_to_one(method: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="storage_from_url"):
        method(wrong)


@pytest.mark.parametrize("method", [Repository.create, Repository.open_or_create])
def test_a_configuration_of_another_type_is_refused(method: Callable[..., Any]) -> None:
    wrong: Any = {"inline_chunk_threshold_bytes": 0}
    storage = in_memory_storage()
    with pytest.raises(InvalidInputError, match="RepositoryConfig, not a dict"):
        method(storage, wrong)
    assert not Repository.exists(storage)


@pytest.mark.parametrize("wrong", [5, "text", {1: 2}, {"a": object()}])
def test_default_metadata_that_cannot_be_stored_is_refused_when_it_is_set(wrong: Any) -> None:
    repository = Repository.create(in_memory_storage())
    with pytest.raises(InvalidInputError):
        repository.set_default_commit_metadata(wrong)
    assert repository.default_commit_metadata() == {}


class _Open(NamedTuple):
    repository: Repository
    session: Session


@pytest.fixture
def opened() -> _Open:
    repository = Repository.create(in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["x"])
    session.commit("array")
    return _Open(repository, repository.writable_session("main"))


CALLS: dict[str, Callable[[_Open, Any], Any]] = {
    "save_config": lambda on, wrong: on.repository.save_config(wrong),
    "maintain": lambda on, wrong: on.repository.maintain(wrong),
    "read": lambda on, wrong: on.session.read(wrong),
    "write": lambda on, wrong: on.session.write(wrong, ..., 1),
    "append": lambda on, wrong: on.session.append(wrong, dim="x"),
    "append path": lambda on, wrong: on.session.append({3: [1]}, dim="x"),  # type: ignore[dict-item]
    "move": lambda on, wrong: on.session.move("a", wrong),
    "shift_array": lambda on, wrong: on.session.shift_array(wrong, (1,)),
    "reindex_array": lambda on, wrong: on.session.reindex_array(wrong, lambda index: index),
    "get_node_id": lambda on, wrong: on.session.get_node_id(wrong),
    "chunk_coordinates": lambda on, wrong: on.session.chunk_coordinates(wrong),
    "set_virtual_refs": lambda on, wrong: on.session.store.set_virtual_refs(wrong, []),
    "coarsen": lambda on, wrong: coarsen(on.session, "a", "b", wrong),
    "coarsen path": lambda on, wrong: coarsen(on.session, wrong, "b", {"x": 2}),
    "coarsen session": lambda on, wrong: coarsen(wrong, "a", "b", {"x": 2}),
    "reduce_array session": lambda on, wrong: reduce_array(wrong, "a", "b", "mean"),
    "rechunk repository": lambda on, wrong: rechunk(wrong, "a", (1,)),
    "from_kerchunk session": lambda on, wrong: from_kerchunk({}, wrong),
    "clone_repository": lambda on, wrong: clone_repository(wrong, in_memory_storage()),
    "copy_branch": lambda on, wrong: copy_branch(wrong, in_memory_storage()),
    "export_zarr": lambda on, wrong: export_zarr(wrong, in_memory_storage(), branch="main"),
    "materialize": lambda on, wrong: materialize(wrong),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_a_wrong_type_is_refused_and_changes_nothing(name: str, opened: _Open) -> None:
    before = opened.repository.lookup_branch("main"), list(opened.repository.ops_log())
    for wrong in (3, [1]):
        with pytest.raises(InvalidInputError, match="must be"):
            CALLS[name](opened, wrong)
    assert not opened.session.has_uncommitted_changes
    assert (opened.repository.lookup_branch("main"), list(opened.repository.ops_log())) == before
