"""A hierarchy of groups and arrays that hold one number each, and what readers see of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from arraystore import Repository, Session, Storage, in_memory_storage
from tests.commit.rivals import latest

TREE = {"g": None, "g/x": 1, "g/deep": None, "g/deep/y": 2, "h": None, "h/z": 3, "top": 4}
"""Nodes of `repository_with_tree`: groups, and arrays with the number that they hold."""


def repository_with_tree(storage: Storage | None = None) -> tuple[Storage, Repository]:
    storage = storage or in_memory_storage()
    repository = Repository.create(storage)
    with repository.transaction("main", message="create") as store:
        zarr.create_group(store)
        for path, value in TREE.items():
            if value is None:
                zarr.create_group(store, path=path, attributes={"was": path})
            else:
                array_at(store, path, value)
    return storage, repository


def array_at(store: Any, path: str, value: int) -> None:
    zarr.create_array(store, name=path, shape=(4,), chunks=(2,), dtype="i4", fill_value=-1)[:] = value


def tree_of(session: Session) -> dict[str, int | None]:
    """Return all nodes but the root, as zarr sees them: groups, and arrays with the number that they hold."""
    found: dict[str, int | None] = {}
    for path, node in zarr.open_group(session.store, mode="r").members(max_depth=None):
        if isinstance(node, zarr.Group):
            found[path] = None
        else:
            held = np.unique(np.asarray(node[:]))
            assert len(held) == 1
            found[path] = int(held[0])
    return found


def check(storage: Storage, expected: dict[str, int | None]) -> None:
    """Check what a reader sees that replays the log, and one that reads a checkpoint."""
    assert tree_of(latest(storage)) == expected
    repository = Repository.open(storage)
    repository.create_tag(f"tag{len(repository.list_tags())}", repository.lookup_branch("main"))
    tag = f"tag{len(repository.list_tags()) - 1}"
    assert tree_of(Repository.open(storage).readonly_session(tag=tag)) == expected


def find_orphans(storage: Storage, branch: str = "main") -> list[str]:
    """Return the nodes that are not in groups all the way up."""
    nodes = Repository.open(storage).readonly_session(branch).base_tip.state.nodes
    groups = {key for key, node in nodes.items() if node.kind.name == "GROUP"}
    return [key for key in nodes if key and key.rpartition("/")[0] not in groups]


def check_valid(storage: Storage) -> None:
    """Check that every node is in groups, and that both ways of reading agree."""
    assert find_orphans(storage) == []
    check(storage, tree_of(latest(storage)))
