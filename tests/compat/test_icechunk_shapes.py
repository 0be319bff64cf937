"""Values of the compatibility layer are printed, and told apart, as those of Icechunk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import icechunk as upstream
import numpy as np
import pytest
import zarr

import arraystore
import arraystore.compat.icechunk as icechunk  # noqa: PLR0402 - as the docs say


@pytest.fixture
def repo() -> icechunk.Repository:
    return icechunk.Repository.create(icechunk.in_memory_storage())


UNKNOWN = "ZZZZZZZZZZZZZZZZZZZ0"
"""An id as Icechunk makes them, larger than any of arraystore."""


@pytest.mark.parametrize(
    "look_up",
    [
        lambda repo: repo.lookup_snapshot(UNKNOWN),
        lambda repo: repo.readonly_session(snapshot_id=UNKNOWN),
        lambda repo: repo.create_tag("v1", UNKNOWN),
        lambda repo: repo.create_branch("dev", UNKNOWN),
        lambda repo: repo.reset_branch("main", UNKNOWN),
        lambda repo: list(repo.ancestry(snapshot_id=UNKNOWN)),
    ],
)
def test_an_id_of_a_repository_of_icechunk_is_that_of_no_snapshot(
    repo: icechunk.Repository, look_up: Callable[[icechunk.Repository], object]
) -> None:
    with pytest.raises(icechunk.SnapshotNotFoundError) as raised:
        look_up(repo)
    assert raised.value.kind == icechunk.ErrorKind.SNAPSHOT_NOT_FOUND


def test_a_graph_has_the_id_of_icechunk_for_the_first_snapshot(repo: icechunk.Repository) -> None:
    snapshot = repo.writable_session("main").commit("one", allow_empty=True)
    first, second = reversed(repo.ancestry_graph(branch="main").rows)
    assert (first.id, first.parent_id) == ("1CECHNKREP0F1RSTCMT0", None)
    assert (second.id, second.parent_id) == (snapshot, "1CECHNKREP0F1RSTCMT0")
    assert "1CECHNKREP0F1RSTCMT0" in str(repo.ancestry_graph())


def test_operations_are_printed_as_those_of_icechunk(repo: icechunk.Repository) -> None:
    theirs = upstream.Repository.create(upstream.in_memory_storage())
    printed: list[list[str]] = []
    for each in (repo, theirs):
        first: Any = each.lookup_branch("main")
        each.create_tag("v1", first)
        each.create_branch("dev", first)
        each.set_feature_flag("create_tag", setting=False)
        each.delete_branch("dev")
        printed.append([repr(update.kind) for update in each.ops_log()])
    assert printed[0] == printed[1]


MEMBERS = [
    (name, member)
    for name in ("ChunkType", "SessionMode", "SpecVersion", "CompressionAlgorithm", "ChecksumAlgorithm")
    for member in dir(getattr(upstream, name))
    if isinstance(getattr(getattr(upstream, name), member), getattr(upstream, name))
]


@pytest.mark.parametrize(("name", "member"), MEMBERS)
def test_members_of_enumerations_are_printed_and_numbered_as_those_of_icechunk(name: str, member: str) -> None:
    ours: Any = getattr(getattr(icechunk, name), member)
    theirs: Any = getattr(getattr(upstream, name), member)
    assert (str(ours), repr(ours), int(ours)) == (str(theirs), repr(theirs), int(theirs))
    assert ours == int(ours)


SETTINGS = [
    icechunk.RepositoryConfig,
    icechunk.CachingConfig,
    icechunk.CompressionConfig,
    icechunk.ManifestConfig,
    icechunk.ManifestPreloadConfig,
    icechunk.StorageSettings,
    icechunk.StorageConcurrencySettings,
    icechunk.StorageRetriesSettings,
    icechunk.StorageTimeoutSettings,
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_setting_that_there_is_not_is_an_error(settings: Callable[[], Any]) -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        settings().nonsense = 1


def test_a_collection_up_to_a_time_that_is_yet_to_come_collects_what_there_is(repo: icechunk.Repository) -> None:
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="a", shape=1000, chunks=1000, dtype="f8", compressors=None)[:] = 1
    session.flush("nobody's")
    time.sleep(0.2)  # ids that are made in one millisecond have the times of the next ones
    later = datetime.now(UTC) + timedelta(days=1)
    assert repo.garbage_collect(later, dry_run=True).snapshots_deleted >= 1
    assert repo.garbage_collect(later).snapshots_deleted >= 1
    assert repo.garbage_collect(later).snapshots_deleted == 0


def test_a_move_onto_a_node_is_an_error_about_what_exists(repo: icechunk.Repository) -> None:
    with repo.transaction("main", message="two") as store:
        for name in "ab":
            zarr.create_group(store, path=name)
    session = repo.rearrange_session("main")
    with pytest.raises(icechunk.AlreadyExistsError) as raised:
        session.move("/a", "/b")
    assert raised.value.kind == icechunk.ErrorKind.MOVE_WONT_OVERWRITE


def test_metadata_may_have_values_of_numpy(repo: icechunk.Repository) -> None:
    metadata = {"steps": np.int64(3), "of": [np.float32(1.5), {"done": np.bool_(True)}], "at": np.arange(2)}
    expected: Any = {"steps": 3, "of": [1.5, {"done": True}], "at": [0, 1]}
    commits = [
        repo.writable_session("main").commit("one", metadata, allow_empty=True),
        repo.writable_session("main").amend("two", metadata=metadata, allow_empty=True),
        repo.rewrite_manifests("three", branch="main", metadata=metadata),
    ]
    with repo.transaction("main", message="four", metadata=metadata) as store:
        zarr.create_group(store)
    commits.append(repo.lookup_branch("main"))
    session = repo.writable_session("main")
    zarr.create_group(session.store, path="a")
    commits.append(session.flush("five", metadata=metadata))
    repo.set_default_commit_metadata(metadata)
    commits.append(repo.writable_session("main").commit("six", allow_empty=True))
    assert [repo.lookup_snapshot(commit).metadata for commit in commits] == [expected] * 6
    repo.set_metadata(metadata)
    assert repo.update_metadata({"size": np.uint8(2)}) == {**expected, "size": 2}


@pytest.fixture
def empty_server() -> Iterator[tuple[str, set[str | None]]]:
    """Run a server that has nothing; yields its URL, and the user agents of the requests to it."""
    agents: set[str | None] = set()

    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            agents.add(self.headers.get("User-Agent"))
            self.send_error(404)

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Nothing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", agents
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("own", [None, "weather/7"])
def test_requests_tell_the_attribution_of_a_repository(
    empty_server: tuple[str, set[str | None]], own: str | None
) -> None:
    url, agents = empty_server
    storage = icechunk.s3_storage(
        bucket="b",
        prefix="p",
        endpoint_url=url,
        allow_http=True,
        force_path_style=True,
        region="us-east-1",
        access_key_id="a",
        secret_access_key="b",
        headers=None if own is None else {"user-agent": own},
    )
    by = icechunk.Attribution(client="lib/0.9", workload="nightly", principal="u_1")
    with pytest.raises(icechunk.RepositoryNotFoundError):
        icechunk.Repository.open(storage, attribution=by)
    named = f"lib/0.9 arraystore/{arraystore.__version__} (workload=nightly; principal=u_1)"
    assert agents == {named if own is None else f"{own} {named}"}


@pytest.mark.parametrize("name", ["client", "workload"])
def test_labels_that_no_header_can_have_are_refused_as_in_icechunk(name: str) -> None:
    for label in [f"a{sign}b" for sign in (*map(chr, range(256)), "日")]:
        try:
            upstream.Attribution(**{name: label})
        except ValueError:
            with pytest.raises(icechunk.InvalidInputError, match=f"^{name}="):
                icechunk.Attribution(**{name: label})
        else:
            assert getattr(icechunk.Attribution(**{name: label}), name) == label
