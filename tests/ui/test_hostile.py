"""A repository of somebody who wants to break the page: every view answers, small and in JSON."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import zarr

import arraystore
from arraystore.ui.opening import open_to_look
from arraystore.ui.server.answers import VIEWS, Answer, answer
from tests.ui.hostile import LONG, MARKUP, SCRIPT, build_hostile, damage

MOST = 4 << 20
"""Bytes of one answer."""


@pytest.fixture(scope="module")
def hostile() -> tuple[arraystore.Repository, dict[str, str]]:
    storage = arraystore.in_memory_storage()
    ids = build_hostile(storage)
    return open_to_look(storage), ids


def ask(look: arraystore.Repository, name: str, **values: str) -> Answer:
    found = asyncio.run(answer(look, name, {key.rstrip("_"): value for key, value in values.items()}))
    text = json.dumps(found.body, allow_nan=False)
    assert len(text) < MOST
    assert ("result" in found.body) == (found.status == 200)
    if found.status != 200:
        assert found.body["error"].keys() == {"type", "kind", "message"}
    return found


@pytest.mark.parametrize("at", ["names", "broken"])
def test_every_view_of_every_node_answers(hostile: tuple[arraystore.Repository, dict[str, str]], at: str) -> None:
    look, ids = hostile
    rows = ask(look, "tree", at=ids[at]).body["result"]["rows"]
    assert len(rows) > 15
    statuses: dict[str, dict[str, int]] = {}
    for row in rows:
        values = {"at": ids[at], "path": row["path"], "from_": ids["names"], "to": ids[at]}
        statuses[row["path"]] = {
            name: ask(look, name, **values).status for name in ("node", "chunks", "preview", "diff-node", "diff-values")
        }
        assert statuses[row["path"]]["node"] == 200
    assert statuses["special"] == {"node": 200, "chunks": 200, "preview": 200, "diff-node": 200, "diff-values": 200}
    assert (
        statuses["huge/shape"]["preview"] == statuses["huge/grid"]["chunks"] == statuses["huge/dims"]["chunks"] == 200
    )
    assert statuses["huge/chunk"]["preview"] == 422
    assert statuses["empty"]["preview"] == statuses["empty"]["chunks"] == statuses["times"]["preview"] == 200


@pytest.mark.parametrize("name", ["attributes", "codec", "codecs", "dimensions", "dtype", "fill", "inner"])
def test_metadata_that_zarr_refuses_is_an_error_that_names_the_array(
    hostile: tuple[arraystore.Repository, dict[str, str]], name: str
) -> None:
    look, ids = hostile
    found = ask(look, "preview", at=ids["broken"], path=f"bad/{name}")
    assert (found.status, found.body["error"]["kind"]) == (422, "unreadable-metadata")
    assert f"array '/bad/{name}'" in found.body["error"]["message"]


def test_every_view_of_the_repository_answers(hostile: tuple[arraystore.Repository, dict[str, str]]) -> None:
    look, ids = hostile
    values = {"at": ids["broken"], "id": ids["broken"], "from_": ids["names"], "to": ids["broken"], "branch": "main",
              "ours": ids["broken"], "onto": "branch:a/b/c", "path": "special"}  # fmt: skip
    assert {name: ask(look, name, **values).status for name in VIEWS} == dict.fromkeys(VIEWS, 200)


def test_text_stays_text(hostile: tuple[arraystore.Repository, dict[str, str]]) -> None:
    look, ids = hostile
    row = ask(look, "history").body["result"]["subjects"]
    assert all(len(subject) <= 161 for subject in row)
    found = ask(look, "snapshot", id=ids["names"]).body["result"]
    assert found["message"] == MARKUP + LONG
    assert found["metadata"][MARKUP] == SCRIPT
    assert ask(look, "preview", at=ids["names"], path="words").body["result"]["table"][0][0] == MARKUP[:80]
    assert ask(look, "preview", at=ids["names"], path="word").body["result"]["table"] == [[MARKUP[:80]]]
    assert ask(look, "node", at=ids["names"], path="names").body["result"]["attributes"][MARKUP] == SCRIPT


def test_a_huge_array_is_shown_in_part_by_few_requests(hostile: tuple[arraystore.Repository, dict[str, str]]) -> None:
    look, ids = hostile
    ask(look, "node", at=ids["names"], path="huge/shape")  # loads the snapshot
    found = ask(look, "preview", at=ids["names"], path="huge/shape").body
    assert found["result"]["clipped"]
    assert found["cost"]["requests"] == 0
    far = ask(look, "preview", at=ids["names"], path="huge/shape", index=f"{1 << 61},{1 << 60}").body["result"]
    assert far["axes"][0]["start"] == 1 << 61
    map_ = ask(look, "chunks", at=ids["names"], path="huge/shape").body["result"]
    assert map_["picture"]["rows"] * map_["picture"]["columns"] <= 1 << 16
    message = ask(look, "preview", at=ids["names"], path="huge/chunk").body["error"]["message"]
    assert "8,796,093,022,208 bytes" in message


@pytest.mark.parametrize(
    ("part", "failing"),
    [
        ("chunks/", {"preview", "diff-values"}),
        ("/branch/main/", {"snapshot", "tree", "node", "chunks", "preview", "storage"}),
        ("snapshots/", {"tree"}),
    ],
)
def test_damaged_objects_are_errors_of_the_views_that_need_them(part: str, failing: set[str]) -> None:
    storage = arraystore.in_memory_storage()
    ids = build_hostile(storage)
    assert damage(storage, part) > 0
    values = {"at": ids["broken"], "id": ids["broken"], "from_": ids["names"], "to": ids["broken"], "branch": "main",
              "ours": ids["broken"], "onto": "branch:a/b/c", "path": "noise"}  # fmt: skip
    look = open_to_look(storage)
    found = {name: ask(look, name, **values) for name in VIEWS}
    failed = {name: each.body["error"]["type"] for name, each in found.items() if each.status != 200}
    assert failing <= failed.keys() if part != "snapshots/" else failed
    assert "overview" not in failed
    assert set(failed.values()) <= {"FormatError", "ChunkDamagedError", "SnapshotNotFoundError", "LogForkError"}


def test_damaged_manifests_are_errors_of_the_views_that_need_them() -> None:
    storage = arraystore.in_memory_storage()
    session = arraystore.Repository.create(storage).writable_session("main")
    zarr.create_array(session.store, name="special", shape=(120, 3_200), chunks=(1, 8), dtype="u1", compressors=None)
    session.write("special", ..., np.random.default_rng(0).integers(1, 255, (120, 3_200), dtype="u1"))
    at = session.commit("many chunks")
    assert damage(storage, "manifests/") > 0
    look = open_to_look(storage)
    values = {"at": at, "id": at, "path": "special", "from_": at, "to": at, "ours": at, "onto": "branch:main"}
    statuses = {name: ask(look, name, **values).status for name in ("tree", "node", "snapshot", "history")}
    assert set(statuses.values()) == {200}
    for name in ("chunks", "preview", "storage"):
        assert ask(look, name, **values).body["error"]["type"] == "FormatError"


def test_the_other_branches_can_be_seen_where_one_is_damaged() -> None:
    storage = arraystore.in_memory_storage()
    ids = build_hostile(storage)
    damage(storage, "/branch/main/")
    look = open_to_look(storage)
    branches = {each["name"]: each for each in ask(look, "overview").body["result"]["branches"]}
    assert "damaged" in branches["main"]["broken"]
    assert branches["a/b/c"]["broken"] is None
    for at in (ids["names"], "branch:a/b/c"):
        assert ask(look, "tree", at=at).body["result"]["snapshot"] == ids["names"]
