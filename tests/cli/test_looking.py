"""Commands that look: history and hierarchies, for people and for programs, with credentials that only read."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, Made, commit, make_noise

pytestmark = pytest.mark.usefixtures("read_only")


def test_log_lists_snapshots_newest_first_with_their_messages_as_they_are(cli: Cli, made: Made) -> None:
    lines = cli("log", made.url, "--oneline").out.splitlines()
    assert [line.split()[0] for line in lines] == ["snapshot", *reversed(made.snapshots)]
    assert lines[2].endswith("rain [bold]falls")


def test_log_keeps_the_lines_of_messages_and_names_branches_and_tags(cli: Cli, made: Made) -> None:
    long = commit(made.open(), "heavy\n\nfor three days\x1b[2J", lambda root: root.attrs.update(late=1))
    made.open().create_tag("v1", long)
    shown = cli("log", made.url, "-n", 1).out.splitlines()
    assert shown[0] == f"snapshot {long} (branch main, tag v1)"
    assert shown[1].startswith("written  2")
    assert shown[2:] == ["", "    heavy", "", "    for three days\\x1b[2J", ""]
    assert cli("log", made.url, "-n", 1, "--oneline").out.endswith(
        "heavy for three days\\x1b[2J (branch main, tag v1)\n"
    )


def test_the_reflog_tells_where_a_branch_has_been(cli: Cli, made: Made) -> None:
    repository = made.open()
    repository.reset_branch("main", made.snapshots[1])
    found = cli("reflog", made.url, "--json").json
    assert [(each["number"], each["details"]["snapshot"]) for each in found] == [
        (0, made.snapshots[1]),
        *enumerate(reversed(made.snapshots[1:]), start=1),
    ]
    lines = cli("reflog", made.url, "-n", 2).out.splitlines()
    assert lines[1].split()[:2] == ["main@{0}", made.snapshots[1]]
    assert lines[1].split()[4] == "reset"
    assert lines[2].split()[4:] == ["commit", "more", "rain"]


def test_log_in_json_has_ids_parents_times_messages_and_metadata(cli: Cli, made: Made) -> None:
    found = cli("log", made.url, "--json").json
    assert [item["id"] for item in found] == list(reversed(made.snapshots))
    assert [item["parent_id"] for item in found] == [*reversed(made.snapshots[:-1]), None]
    assert found[0]["message"] == "more rain"
    assert found[0]["metadata"] == {"by": "tests"}
    assert found[0]["written_at"].endswith("+00:00")


@pytest.mark.parametrize("count", [1, 2, 9])
def test_log_stops_at_its_limit(cli: Cli, made: Made, count: int) -> None:
    assert len(cli("log", made.url, "-n", count, "--json").json) == min(count, 4)


def test_log_starts_at_a_branch_tag_snapshot_or_ancestor(cli: Cli, made: Made) -> None:
    repository = made.open()
    repository.create_branch("dev", made.snapshots[2])
    repository.create_tag("v1", made.snapshots[1])
    starts: dict[tuple[str, ...], str] = {
        ("dev",): made.snapshots[2],
        ("--branch", "dev"): made.snapshots[2],
        ("--tag", "v1"): made.snapshots[1],
        ("v1",): made.snapshots[1],
        ("tag:v1",): made.snapshots[1],
        (made.snapshots[1],): made.snapshots[1],
        ("main~2",): made.snapshots[1],
        ("main~",): made.snapshots[2],
        ("v1~1",): made.snapshots[0],
    }
    for arguments, snapshot in starts.items():
        assert cli("log", made.url, *arguments, "--json").json[0]["id"] == snapshot, arguments


def test_a_name_that_is_a_branch_and_a_tag_is_taken_as_the_branch_and_that_is_said(cli: Cli, made: Made) -> None:
    made.open().create_branch("v1", made.snapshots[2])
    made.open().create_tag("v1", made.snapshots[1])
    answer = cli("log", made.url, "v1", "--json")
    assert answer.json[0]["id"] == made.snapshots[2]
    assert answer.err == "note: 'v1' is both a branch and a tag; using the branch (use tag:v1 for the tag)\n"
    assert cli("log", made.url, "tag:v1", "--json").json[0]["id"] == made.snapshots[1]


@pytest.mark.parametrize("name", ["nothing", "branch:nothing", "tag:nothing", "main~9", "00000000000000000000"])
def test_a_name_of_nothing_is_an_error_that_names_it(cli: Cli, made: Made, name: str) -> None:
    answer = cli("log", made.url, name, code=1)
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert name.partition(":")[2] in answer.err


def test_two_starts_are_one_too_many(cli: Cli, made: Made) -> None:
    assert (
        cli("log", made.url, "main", "--tag", "v1", code=1).err == "error: pass only one of REF, --branch and --tag\n"
    )


def test_tree_shows_shapes_types_chunks_and_how_much_is_initialised(cli: Cli, made: Made) -> None:
    lines = cli("tree", made.url).out.splitlines()
    assert lines[0] == "/"
    assert any("rain  float32 10×4  chunks 2×2  30 % of 10 chunks" in line for line in lines)
    assert any("numbers  int64 6  chunks 3  100 % of 2 chunks" in line for line in lines)
    assert any(line.endswith("north") for line in lines)


def test_tree_of_an_older_snapshot_and_of_a_part(cli: Cli, made: Made) -> None:
    found = cli("tree", made.url, "climate", "--ref", "main~2", "--json").json
    assert [view["path"] for view in found] == ["/climate", "/climate/north", "/climate/north/rain"]
    assert found[2]["initialised"] == 0
    assert found[2]["shape"] == [10, 4]
    assert found[2]["dimensions"] == ["time", "x"]


def test_a_branch_is_shown_as_it_was_at_some_time(cli: Cli, made: Made) -> None:
    then = made.open().lookup_snapshot(made.snapshots[1]).written_at.isoformat()
    found = cli("tree", made.url, "climate/north", "--as-of", then, "--json").json
    assert found[1]["initialised"] == 0
    assert cli("ls", made.url, "--as-of", "now").out == cli("ls", made.url).out
    assert "no snapshot" in cli("ls", made.url, "--as-of", "52w", code=1).err
    assert "needs a branch" in cli("ls", made.url, "--ref", made.tip, "--as-of", "now", code=1).err


def test_a_quick_tree_says_nothing_of_chunks_that_it_did_not_count(cli: Cli, made: Made) -> None:
    assert {view["initialised"] for view in cli("tree", made.url, "--quick", "--json").json} == {None}


def test_ls_lists_what_is_right_below(cli: Cli, made: Made) -> None:
    assert [view["path"] for view in cli("ls", made.url, "--json").json] == ["/climate", "/numbers"]
    assert [view["kind"] for view in cli("ls", made.url, "/climate", "--json").json] == ["group"]
    assert "rain  array  float32  10×4   2×2" in cli("ls", made.url, "climate/north").out


def test_a_path_of_nothing_is_an_error(cli: Cli, made: Made) -> None:
    for command in ("ls", "tree"):
        assert "no group or array 'climate/south'" in cli(command, made.url, "climate/south", code=1).err


def test_ops_tell_what_was_done_newest_first(cli: Cli, made: Made) -> None:
    made.open().create_tag("v1", made.snapshots[1])
    made.open().set_metadata({"title": "rain"})
    found = cli("ops", made.url, "--json").json
    kinds = ["MetadataChanged", "TagCreated", "NewCommit", "NewCommit", "NewCommit", "RepoInitialized"]
    assert [update["kind"] for update in found] == kinds
    assert found[1]["details"]["name"] == "v1"
    lines = cli("ops", made.url, "-n", 3).out.splitlines()
    assert len(lines) == 4
    assert f"NewCommit           branch: main, snapshot: {made.tip}, message: more rain" in lines[3]


def test_stat_tells_the_requests_and_bytes_of_commands_by_kind(cli: Cli, made: Made) -> None:
    commit(made.open(), "noise", make_noise)
    made.open().wait_for_maintenance()
    found = cli("stat", made.url, "--requests", "--json").json
    costs = {each["command"]: each for each in found}
    commands = ["branch list", "log -n 10", "show", "tree --quick", "tree", "stat", "a chunk of /noise"]
    assert list(costs) == commands
    for each in found:
        assert each["total"] == sum(count for kind, count in each["requests"].items() if kind != "sync")
        assert each["total"] > 0
        assert each["bytes_read"] > 0
        assert not {"put", "put_if_absent", "delete"} & set(each["requests"])
        assert each["bytes_written"] == 0
    (pack,) = [data for path, data in made.files().items() if "/chunks/" in path]
    assert costs["a chunk of /noise"]["bytes_read"] >= len(pack)
    assert costs["tree"]["total"] >= costs["tree --quick"]["total"]
    assert costs["stat"]["requests"]["list"] >= 1
    assert found == cli("stat", made.url, "--requests", "--json").json  # nothing is remembered from run to run
    shown = cli("stat", made.url, "--requests").out.splitlines()
    assert shown[0].split() == ["command", "GET", "LIST", "HEAD", "requests", "read"]
    row = next(line for line in shown if line.startswith("tree --quick"))
    assert row.split()[2] == str(costs["tree --quick"]["requests"]["get"])
    assert "no branch 'none'" in cli("stat", made.url, "--requests", "--branch", "none", code=1).err


def test_stat_tells_requests_of_a_repository_without_chunks_in_packs(cli: Cli, made: Made) -> None:
    assert [each["command"] for each in cli("stat", made.url, "--requests", "--json").json][-1] == "stat"


def test_stat_tells_what_takes_how_much(cli: Cli, made: Made) -> None:
    commit(made.open(), "noise", make_noise)
    found = cli("stat", made.url, "--json").json
    arrays = {array["path"].strip("/"): array for array in found["arrays"]}
    assert (arrays["noise"]["chunks"], arrays["noise"]["native_bytes"] > 4000) == (1, True)
    assert found["packs"]["count"] == 1
    sizes = [len(data) for path, data in made.files().items() if "/chunks/" in path]
    assert found["objects"]["packs"] == {"count": 1, "bytes": sum(sizes)}
    shown = cli("stat", made.url, "-n", 2).out
    for part in ("1 pack: ", "/noise", "/climate/north/rain", "unique", made.tip, "newest 2 snapshots"):
        assert part in shown
    assert "no branch 'none'" in cli("stat", made.url, "--branch", "none", code=1).err
