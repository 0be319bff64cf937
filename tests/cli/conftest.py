"""The command line in this process, and repositories for it to work on."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
import typer.testing
import zarr
from typer.testing import CliRunner

import arraystore.storage
from arraystore import Repository, Storage, StorageError, WrapperStorage, local_filesystem_storage
from arraystore.cli.app import make_app
from arraystore.storage import BytesLike, DeleteFailure


@dataclass(frozen=True)
class Answer:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        found = json.loads(self.out)
        assert found.keys() == {"version", "result"}
        assert found["version"] == 1
        return found["result"]


Cli = Callable[..., Answer]

APP = make_app()

# Each call would make all commands anew, which takes ten times what a command does.
pytest.MonkeyPatch().setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))


@pytest.fixture
def cli() -> Cli:
    def run(*arguments: object, code: int = 0) -> Answer:
        done = CliRunner().invoke(APP, list(map(str, arguments)), prog_name="arraystore", catch_exceptions=False)
        answer = Answer(done.exit_code, done.stdout, done.stderr)
        assert answer.code == code, answer
        assert "Traceback" not in answer.err
        return answer

    return run


@dataclass(frozen=True)
class Made:
    """A repository in a directory, and its snapshots, oldest first."""

    path: Path
    snapshots: tuple[str, ...]

    def open(self) -> Repository:
        return Repository.open(local_filesystem_storage(str(self.path)))

    @property
    def tip(self) -> str:
        return self.snapshots[-1]

    @property
    def url(self) -> str:
        return str(self.path)

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.path.rglob("*")) if path.is_file()}

    def values(self, path: str, **ref: Any) -> list[float]:
        session = self.open().readonly_session(**(ref or {"branch": "main"}))
        return list(np.asarray(zarr.open_array(session.store, path=path, mode="r")[:]).ravel())


def commit(repository: Repository, message: str, change: Callable[[zarr.Group], object], branch: str = "main") -> str:
    session = repository.writable_session(branch)
    change(zarr.open_group(session.store, mode="a"))
    return session.commit(message, {"by": "tests"})


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Four commits: groups and arrays, some chunks, other chunks, a rename of nothing but an attribute."""
    repository = Repository.create(local_filesystem_storage(str(tmp_path / "repo")))

    def begin(root: zarr.Group) -> None:
        root.attrs["title"] = "tests"
        group = root.create_group("climate/north")
        group.create_array("rain", shape=(10, 4), chunks=(2, 2), dtype="f4", dimension_names=("time", "x"))
        root.create_array("numbers", data=np.arange(6), chunks=(3,))

    snapshots = [
        repository.lookup_branch("main"),
        commit(repository, "begin", begin),
        commit(repository, "rain [bold]falls", lambda root: fill(root, slice(0, 4), 1.0)),
        commit(repository, "more rain", lambda root: fill(root, slice(2, 6), 2.0)),
    ]
    repository.wait_for_maintenance()
    return Made(tmp_path / "repo", tuple(snapshots))


def fill(root: zarr.Group, rows: slice, value: float) -> None:
    array = root["climate/north/rain"]
    assert isinstance(array, zarr.Array)
    array[rows, :2] = value


def flip(path: Path) -> None:
    """Damage a file by one bit in its middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def make_noise(root: zarr.Group) -> None:
    """Create an array whose only chunk is too large to travel in a record."""
    root.create_array("noise", data=np.random.default_rng(0).integers(0, 256, 4096, dtype="u1"), chunks=(4096,))


class Unwritable(WrapperStorage):
    """A storage whose credentials only read."""

    def _refuse(self, key: str) -> StorageError:
        return StorageError(f"{key}: these credentials may not write")

    async def put(self, key: str, data: BytesLike) -> None:
        raise self._refuse(key)

    async def put_if_absent(self, key: str, data: BytesLike) -> bool:
        raise self._refuse(key)

    async def put_new(self, key: str, data: BytesLike) -> bool:
        raise self._refuse(key)

    async def delete(self, keys: Sequence[str]) -> list[DeleteFailure]:
        raise self._refuse(str(keys))

    def put_sync(self, key: str, data: BytesLike) -> None:
        raise self._refuse(key)


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands have storages that refuse every write."""
    make = arraystore.storage.storage_from_url

    def unwritable(url: str) -> Storage:
        return Unwritable(make(url))

    monkeypatch.setattr(arraystore.storage, "storage_from_url", unwritable)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let somebody sit at the terminal, who answers."""

    def answers(line: str) -> None:
        monkeypatch.setattr("arraystore.cli.confirmation.on_terminal", lambda: True)
        monkeypatch.setattr("arraystore.cli.confirmation.read_answer", lambda: line)

    return answers
