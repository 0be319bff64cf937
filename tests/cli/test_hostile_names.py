"""Names and texts of a repository that would steer a terminal: no command prints them as they are."""

from __future__ import annotations

import pytest
import zarr

from arraystore import RepoAvailability, Repository, RepoStatus, local_filesystem_storage
from tests.cli.conftest import Cli

ESCAPE = "\x1b]0;owned\x07\x9b2J\u202e"
CONTROLS = {"\x1b", "\x07", "\x9b", "\u202e"}
BRANCH = "b\x9b2J\u202e"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("hostile") / "repo")
    repository = Repository.create(local_filesystem_storage(path))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name=f"group/{ESCAPE}", shape=2, chunks=1, dtype="i4", attributes={"a": ESCAPE})[
        :
    ] = 1
    repository.create_branch(BRANCH, session.commit(ESCAPE, {ESCAPE: ESCAPE}))
    repository.set_metadata({"name": ESCAPE, ESCAPE: "value"})
    repository.set_status(RepoStatus(RepoAvailability.read_only, None, ESCAPE))
    return path


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("log", 0), ("log --oneline", 0), ("log --graph", 0), ("show", 0), ("diff {} main~1 main", 0),
        ("diff {} main~1 main --markdown", 0), ("tree", 0), ("ls {} group", 0), ("stat", 0), ("ops", 0),
        ("reflog", 0), ("status", 0), ("branch list", 0), ("metadata list", 0), ("metadata get {} name", 0),
        ("metadata get {} none", 1), ("branch create {} other", 11), ("metadata delete {} name", 13), ("verify", 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_command_prints_what_steers_a_terminal(cli: Cli, url: str, command: str, code: int, as_json: bool) -> None:
    words = [url if word == "{}" else word for word in command.split()]
    words += [] if url in words else [url]
    answer = cli(*words, *(["--json"] if as_json and "--markdown" not in words else []), code=code)
    assert not CONTROLS & {*answer.out, *answer.err}
    assert answer.out or answer.err


def test_json_holds_the_names_as_they_are(cli: Cli, url: str) -> None:
    assert cli("metadata", "get", url, "name", "--json").json == ESCAPE
    assert BRANCH in cli("branch", "list", url, "--json").json


def test_no_text_of_the_library_steers_a_terminal(url: str) -> None:
    repository = Repository.open(local_filesystem_storage(url))
    diff = repository.diff(from_snapshot_id=list(repository.ancestry(branch="main"))[-1].id, to_branch="main")
    assert not CONTROLS & {*repr(diff), *diff.to_markdown(), *str(repository.ancestry_graph())}
