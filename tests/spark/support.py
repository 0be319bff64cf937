"""Repositories, what is in them, and errors out of Spark, as most tests of Spark need them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zarr

from arraystore import Repository, local_filesystem_storage
from arraystore._session.base import SessionBase
from arraystore._session.listing import all_nodes
from arraystore.spark import translate_error
from arraystore.spark.streams.progress import STREAMS, StreamProgress


def new_repository(tmp_path: Path) -> Repository:
    """Create a repository in a directory, which processes of Spark can open, too."""
    return Repository.create(local_filesystem_storage(tmp_path / "repo", fsync=False))


def put_array(
    store: Any, path: str, values: Any, chunks: Any, dims: Any, attributes: dict[str, Any] | None = None
) -> None:
    """Create an array with these values."""
    values = np.asarray(values)
    array = zarr.create_array(
        store, name=path, shape=values.shape, chunks=chunks, dtype=values.dtype, dimension_names=dims,
        attributes=attributes or {},
    )  # fmt: skip
    array[...] = values


def read_array(repo: Repository, path: str = "a", branch: str = "main") -> npt.NDArray[Any]:
    """Return the values of an array in the newest snapshot of a branch."""
    return np.asarray(zarr.open_array(repo.readonly_session(branch).store, path=path, mode="r")[...])


def messages(repo: Repository, branch: str = "main") -> list[str]:
    """Return the messages of commits, newest first, without that of the creation."""
    return [snapshot.message for snapshot in repo.ancestry(branch=branch)][:-1]


def spark_error(action: Callable[[], Any]) -> BaseException:
    """Return the error of arraystore that an action raises through Spark."""
    with pytest.raises(Exception, match=r"\[ARRAYSTORE_") as caught:
        action()
    return translate_error(caught.value)


def streams(session: SessionBase) -> dict[str, StreamProgress]:
    """Return the progress of all streams in a session, by their ids."""
    keys = [node.path for node in all_nodes(session.hierarchy) if node.key.startswith("\0" + STREAMS)]
    stored = [json.loads(session.store.get_sync(key).to_bytes()) for key in keys]
    return {each["stream"]: StreamProgress(each["stream"], each["batch"], each.get("run")) for each in stored}
