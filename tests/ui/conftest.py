"""A small repository of all that a page shows, and a client of its server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
import zarr

import arraystore
from arraystore.ui.opening import open_to_look
from arraystore.ui.server.answers import answer
from arraystore.ui.server.app import make_app
from tests.ui.decoding import decoded

TOKEN = "secret"
HOST = "127.0.0.1:8000"


@dataclass(frozen=True)
class World:
    """A repository, and the ids of its snapshots by what they are."""

    storage: arraystore.Storage
    ids: dict[str, str]


def build(storage: arraystore.Storage) -> dict[str, str]:
    """Write a history of a few snapshots, with a branch, a tag, a rebase and a cherry-pick."""
    repo = arraystore.Repository.create(storage)
    ids: dict[str, str] = {}
    session = repo.writable_session("main")
    group = zarr.create_group(session.store, path="air", attributes={"title": "Air"})
    names = ("time", "lat", "lon")
    temperature = group.create_array(
        "temp", shape=(4, 6, 8), chunks=(1, 3, 4), dtype="f4", dimension_names=names, fill_value=np.nan,
        attributes={"units": "K", "long_name": "Air temperature"},
    )  # fmt: skip
    temperature[:2] = np.arange(96, dtype="f4").reshape(2, 6, 8)
    time = group.create_array(
        "time", shape=4, dtype="f8", dimension_names=("time",),
        attributes={"units": "days since 2000-01-30", "calendar": "360_day"},
    )  # fmt: skip
    time[...] = [0, 1, 2, 30]
    lat = group.create_array("lat", shape=6, dtype="f8", dimension_names=("lat",), attributes={"units": "degrees"})
    lat[...] = np.linspace(-50, 50, 6)
    packed = group.create_array(
        "packed", shape=(5,), dtype="i2", attributes={"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -99}
    )
    packed[...] = [0, 2, -99, 4, 6]
    words = zarr.create_array(session.store, name="words", shape=3, dtype="U8", chunks=3)
    words[...] = ["a", "<b>", "c"]
    ids["first"] = session.commit("first\n\nwith a body", {"by": "us"})
    repo.create_tag("v1", ids["first"])
    repo.create_branch("dev", ids["first"])
    with repo.transaction("dev", message="dev writes time 3") as store:
        zarr.open_array(store, path="air/temp")[3] = 7
    ids["dev"] = repo.lookup_branch("dev")
    late = repo.writable_session("main")
    zarr.open_array(late.store, path="air/packed")[0] = 8
    session = repo.writable_session("main")
    fork = session.fork()
    zarr.open_array(fork.store, path="air/temp")[0, :3, :4] = -1
    session.merge(fork)
    zarr.open_group(session.store, path="air").attrs["title"] = "Warm air"
    ids["second"] = session.commit("second")
    ids["rebased"] = late.commit("rebased", rebase_with=arraystore.ConflictDetector())
    ids["picked"] = repo.cherry_pick(ids["dev"], branch="main")
    repo.wait_for_maintenance()
    return ids


@pytest.fixture(scope="session")
def world() -> World:
    storage = arraystore.in_memory_storage()
    return World(storage, build(storage))


@pytest.fixture(scope="session")
def look(world: World) -> arraystore.Repository:
    return open_to_look(world.storage)


@pytest.fixture(scope="session")
def view(look: arraystore.Repository) -> Callable[..., Any]:
    """Return a function that asks for a view and returns its result, with arrays decoded."""
    return viewer(look)


def viewer(look: arraystore.Repository) -> Callable[..., Any]:
    def ask(name: str, status: int = 200, **values: str) -> Any:
        found = asyncio.run(answer(look, name, {key.rstrip("_"): value for key, value in values.items()}))
        assert found.status == status, found.body
        return decoded(found.body["result"]) if status == 200 else found.body["error"]

    return ask


@dataclass(frozen=True)
class Client:
    """Client of a server that runs in this process."""

    app: Any

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await client.request(method, path, **options)

        return asyncio.run(send())


@pytest.fixture(scope="session")
def client(look: arraystore.Repository) -> Client:
    return Client(make_app(look, TOKEN, [HOST, "localhost:8000"]))
