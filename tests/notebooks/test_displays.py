"""What objects show in notebooks and terminals: parsed, hostile, empty and huge."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import islice
from typing import Any

import numpy as np
import pytest
import zarr

from arraystore import (
    ConflictDetector,
    CountingStorage,
    GCSummary,
    RebaseFailedError,
    Repository,
    Session,
    in_memory_storage,
)
from arraystore._conflicts import Conflict, Conflicts, ConflictType
from arraystore._maintenance.verification.findings import Finding, Severity, VerifyReport
from arraystore._maintenance.verification.statistics import CommitRate
from arraystore._runtime import run
from arraystore._runtime.display import View, section
from arraystore.errors import RefNotFoundError, StorageError
from arraystore.storage import DeleteFailure, WrapperStorage
from arraystore.storage.wrapper import StorageRequest

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m\"'&"
ALLOWED = {
    "circle", "code", "details", "div", "g", "path", "pre", "small", "summary", "svg", "table", "tbody", "td", "text",
    "th", "thead", "title", "tr", "tspan", "br",
}  # fmt: skip
VOID = {"br"}


class Page(HTMLParser):
    """Markup that is balanced and has no element or attribute that runs, loads or links anything."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.cells: list[list[str]] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in {"src", "href"}
            assert "url(" not in (value or "")
        if tag == "tr":
            self.cells.append([])
        if tag in {"td", "th"}:
            self.cells[-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert data.replace("\n", "").isprintable()
        self.words.append(data)
        if self._open and self._open[-1] in {"td", "th"}:
            self.cells[-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.words)

    def rows(self, first: str) -> list[list[str]]:
        """Return the rows below the one whose first cell is a word."""
        start = next(at for at, row in enumerate(self.cells) if row and row[0] == first)
        return self.cells[start + 1 :]


def page(shown: Any) -> Page:
    return Page(shown._repr_html_())


def commit(repo: Repository, message: str, **metadata: Any) -> str:
    return repo.writable_session("main").commit(message, metadata=metadata, allow_empty=True)


def repository(commits: int = 3) -> Repository:
    repo = Repository.create(CountingStorage(in_memory_storage()))
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="group/temp", shape=(8, 6), chunks=(4, 3), dtype="f4", dimension_names=("time", "<x>")
    )
    array[:] = np.ones((8, 6))
    session.commit("temperatures")
    for number in range(commits):
        commit(repo, f"commit {number}")
    return repo


def test_a_session_shows_the_dimensions_that_xarray_names_in_either_version_of_zarr() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    attributes = {"_ARRAY_DIMENSIONS": ["north", "east"]}
    zarr.create_array(session.store, name="old", shape=(2, 3), dtype="i2", zarr_format=2, attributes=attributes)
    zarr.create_array(session.store, name="new", shape=2, dtype="i2", dimension_names=["depth"])
    shown = session._repr_html_()
    assert "north, east" in shown
    assert "depth" in shown


# -- histories ----------------------------------------------------------------------------------------------


def test_a_history_is_the_iterator_that_it_was() -> None:
    history = repository().ancestry(branch="main")
    assert iter(history) is history
    assert [info.message for info in islice(history, 2)] == ["commit 2", "commit 1"]
    assert next(history).message == "commit 0"
    assert [info.message for info in history] == ["temperatures", "Repository initialized"]
    assert list(history) == []
    assert next(history, None) is None


def test_a_history_is_indexed_without_taking_anything_from_the_iteration() -> None:
    repo = repository()
    history = repo.ancestry(branch="main")
    assert next(history).message == "commit 2"
    assert (len(history), bool(history)) == (5, True)
    assert (history[0].message, history[-1].message) == ("commit 2", "Repository initialized")
    assert [info.message for info in history[1:3]] == ["commit 1", "commit 0"]
    assert [info.message for info in history[::-2]] == ["Repository initialized", "commit 0", "commit 2"]
    assert repo.lookup_snapshot(history[3].id) in history
    assert len(list(history)) == 4
    assert [info.message for info in reversed(history)][-1] == "commit 2"
    with pytest.raises(IndexError, match="index 5: the history has 5 snapshots"):
        history[5]
    with pytest.raises(IndexError):
        history[-6]


def test_a_history_stays_that_of_the_snapshot_it_was_first_read_at() -> None:
    repo = repository()
    history = repo.ancestry(branch="main")
    newest = history[0]
    commit(repo, "later")
    assert next(history) == newest
    assert len(history) == 5


def test_a_history_makes_no_request_before_it_is_read() -> None:
    repo = repository()
    before = repo.storage.counts.total  # type: ignore[attr-defined]
    history = repo.ancestry(branch="main")
    bool(history)
    assert repo.storage.counts.total == before  # type: ignore[attr-defined]


def test_a_history_that_does_not_exist_fails_when_it_is_read_and_is_shown_with_the_reason() -> None:
    history = repository().ancestry(branch="nope")
    assert "there is no branch 'nope'" in repr(history)
    assert "there is no branch 'nope'" in page(history).text
    for _ in range(2):
        with pytest.raises(RefNotFoundError):
            len(history)
    with pytest.raises(RefNotFoundError):
        next(history)


def test_a_history_is_shown_as_lines_and_as_a_table_with_a_graph() -> None:
    repo = repository()
    repo.create_tag("v1", repo.lookup_branch("main"))
    history = repo.ancestry(branch="main")
    lines = repr(history).splitlines()
    assert lines[0] == "History of branch 'main'"
    assert lines[2].split() == ["snapshot", "time", "(UTC)", "message"]
    assert lines[3].startswith(f"  {history[0].id}  ")
    assert lines[3].endswith("commit 2")
    shown = page(history)
    assert [row[3] for row in shown.rows("snapshot")] == [info.message for info in history[:]]
    assert shown.rows("snapshot")[0][2] == "main, tag: v1"
    assert history._repr_html_().count("<circle") == 5


async def test_the_asynchronous_history_is_iterated_and_closed() -> None:
    repo = repository()
    history = repo.async_ancestry(branch="main")
    assert (await anext(history)).message == "commit 2"
    assert [info.message async for info in history][-1] == "Repository initialized"
    other = repo.async_ancestry(branch="main")
    await anext(other)
    await other.aclose()
    assert [info async for info in other] == []
    assert "async for" in repr(other)


def test_a_look_at_a_repository_with_many_names_costs_few_requests_and_bytes() -> None:
    repo = repository(0)
    base = repo.lookup_branch("main")
    for number in range(40):
        repo.create_branch(f"branch-{number:02}", base)
        repo.create_tag(f"tag-{number:02}", base)
    counts = repo.storage.counts  # type: ignore[attr-defined]
    for shown in (repo, repo.ancestry(branch="main")):
        before = counts.total
        source = shown._repr_html_()
        assert counts.total - before <= 60
        assert len(source) <= 20_000
        assert "more" in Page(source).text


# -- repositories and sessions ------------------------------------------------------------------------------


def test_an_empty_repository_is_shown() -> None:
    repo = Repository.create(in_memory_storage())
    shown = page(repo)
    assert ["tags", "none"] in shown.cells
    assert "Repository initialized" in shown.text
    assert "0 groups, 0 arrays" in page(repo.readonly_session("main")).text.replace("1 group,", "0 groups,")
    assert page(repo.statistics()).text
    assert page(repo.ancestry(branch="main")).rows("snapshot")[0][3] == "Repository initialized"


def test_a_repository_is_shown_with_names_and_newest_snapshots() -> None:
    repo = repository()
    repo.create_branch("dev", repo.lookup_branch("main"))
    repo.create_tag("v1", repo.lookup_branch("main"))
    shown = page(repo)
    assert ["id", repo.id] in shown.cells
    assert ["branches", "2: main, dev"] in shown.cells
    assert ["tags", "1: v1"] in shown.cells
    assert "commit 2" in shown.text


class Obstructed(WrapperStorage):
    """Storage whose requests fail, or never end, once it is told so."""

    trouble: Exception | None = None
    hangs = False

    def around(self, request: StorageRequest) -> Generator[float, Any, None]:
        if self.trouble is not None:
            raise self.trouble
        yield 3600 if self.hangs else 0
        yield 0


def obstructed() -> tuple[Obstructed, Repository]:
    """Return a storage and a repository that has read nothing of it but its identity."""
    storage = Obstructed(in_memory_storage())
    Repository.create(storage)
    return storage, Repository.open(storage)


@pytest.mark.parametrize("kind", [StorageError, OSError])
def test_what_cannot_be_read_is_shown_with_the_reason_and_without_secrets(kind: type[Exception]) -> None:
    storage, repo = obstructed()
    storage.trouble = kind("https://me:hunter2hunter2@host/ refused the <connection>")
    for shown in (repo, repo.ancestry(branch="main")):
        assert f"{kind.__name__}: https://***@host/ refused the <connection>" in page(shown).text
    assert "refused" in repr(repo.ancestry(branch="main"))


def test_a_look_at_a_storage_that_does_not_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, repo = obstructed()
    storage.hangs = True
    for module in ("_repository.ancestry", "_repository.views", "_runtime.display"):
        monkeypatch.setattr(f"arraystore.{module}.LOOK_SECONDS", 0.01)
    for shown in (repo, repo.ancestry(branch="main")):
        assert "no answer within 0.01 s" in page(shown).text


def test_a_look_from_the_event_loop_of_the_package_says_why_it_reads_nothing() -> None:
    repo = repository(0)

    async def look() -> tuple[str, str]:
        return repr(repo.ancestry(branch="main")), repo._repr_html_()

    for shown in run(look()):
        assert "RuntimeError: a synchronous arraystore call was made from" in shown


def test_a_session_is_shown_with_arrays_and_changes() -> None:
    repo = repository()
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="group/temp")[:4, :3] = 2
    shown = page(session)
    assert ["/group/temp", "8 × 6", "float32", "4 × 3", "time, <x>"] in shown.cells
    assert ["branch", "main"] in shown.cells
    assert ["changes", "1 written or deleted chunk"] in shown.cells
    assert ["state", "open"] in shown.cells
    assert ["state", "read-only"] in page(repo.readonly_session("main")).cells
    fork = session.fork()
    assert page(fork).text.startswith("ForkSession of memory://")
    session.merge(fork)
    session.discard_changes()
    assert ["changes", "none"] in page(session).cells


def test_a_session_with_a_thousand_arrays_shows_some_of_them() -> None:
    session = Repository.create(in_memory_storage()).writable_session("main")
    document = b'{"zarr_format":3,"node_type":"array","shape":[1],"data_type":"int8","codecs":[],"chunk_grid":{"name":\
"regular","configuration":{"chunk_shape":[1]}},"chunk_key_encoding":{"name":"default"},"fill_value":0}'
    for number in range(1000):
        session.hierarchy.set_sync(f"a{number}/zarr.json", memoryview(document))
    source = session._repr_html_()
    assert "… and 950 more" in Page(source).text
    assert len(source) <= 60_000


def test_hostile_names_and_messages_are_text() -> None:
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    name = HOSTILE.replace("/", "_")
    attributes = {HOSTILE: HOSTILE}
    zarr.create_array(session.store, name=name, shape=2, dtype="i4", dimension_names=[HOSTILE], attributes=attributes)
    diff = session.status()
    session.commit(HOSTILE * 100, metadata={HOSTILE: HOSTILE, "long": "y" * 10_000})
    info = next(repo.ancestry(branch="main"))
    for each in (repo, repo.ancestry(branch="main"), info, repo.readonly_session("main"), repo.statistics(), diff):
        source = each._repr_html_()
        assert "<script>" in Page(source).text
        assert len(source) < 30_000
    assert "\x1b" not in repr(repo.ancestry(branch="main"))
    assert "\x1b" not in repr(repo.statistics())


def test_a_snapshot_is_shown_with_a_bounded_message_and_metadata() -> None:
    repo = Repository.create(in_memory_storage())
    commit(repo, "first\nsecond\n" + "line\n" * 5_000, source="era5", nested={"a": [1, 2]})
    info = next(repo.ancestry(branch="main"))
    shown = page(info)
    assert ["metadata source", "era5"] in shown.cells
    assert ["metadata nested", '{"a": [1, 2]}'] in shown.cells
    assert "first\nsecond" in shown.text
    assert shown.text.count("line") < 30


# -- reports ------------------------------------------------------------------------------------------------


def test_statistics_are_lines_and_tables() -> None:
    statistics = repository().statistics()
    lines = repr(statistics).splitlines()
    assert lines[0] == "Statistics of branch 'main'"
    assert max(map(len, lines)) <= 100
    assert "/group/temp" in repr(statistics)
    assert page(statistics).rows("array")[0][:2] == ["/group/temp", "4"]


@pytest.mark.parametrize(
    ("rate", "text"),
    [(CommitRate(8, 8, 8, 1_324_777.2), "8 within a day"), (CommitRate(60, 0, 2, 2.0), "2.00 a day"),
     (CommitRate(60, 5, 30, 31.4), "31 a day"), (CommitRate(0, 0, 0, None), "unknown rate")],
)  # fmt: skip
def test_a_rate_is_told_only_of_a_history_longer_than_a_day(rate: CommitRate, text: str) -> None:
    assert rate.text == text


def test_cells_are_broken_only_where_they_are_long() -> None:
    shown = section("", ("time", "message"), [("2026-01-01 00:00:00", "x" * 400)], tuple)
    text = View("", sections=shown).to_html()
    assert text.count("white-space:nowrap") == 3
    assert text.count("overflow-wrap:anywhere") == 1


def test_an_array_without_dimensions_is_called_a_scalar() -> None:
    session = repository().writable_session("main")
    zarr.create_array(session.store, name="number", shape=(), dtype="f8")
    assert ["/number", "scalar", "float64"] in [row[:3] for row in page(session).cells]


def test_a_collection_is_summed_up() -> None:
    summary = GCSummary(2048, 1, 2, full=True, failures=(DeleteFailure("chunks/<b>", HOSTILE),), dry_run=True)
    assert repr(summary).splitlines()[0] == "Garbage collection would delete 3 objects (2.0 KiB)"
    shown = page(summary)
    assert ["manifests", "2"] in shown.cells
    assert shown.rows("key")[0][0] == "chunks/<b>"
    assert "deleted 0 objects" in repr(repository().garbage_collect(datetime.now(UTC)))


def test_a_verification_shows_some_findings_and_counts_the_others() -> None:
    assert "Verification of metadata: nothing is wrong" in repr(repository().verify())
    finding = Finding(Severity.ERROR, "chunks/x", HOSTILE, "restore it", arrays=("a",), array_count=9)
    report = VerifyReport("chunks", (finding,) * 500, 7, {"chunks": 10}, {}, {HOSTILE: 3})
    shown = page(report)
    assert "500 errors, 0 warnings, and 7 more findings" in shown.text
    assert "… and 480 more" in shown.text
    assert shown.rows("severity")[0][3] == "a and 8 more"
    assert len(report._repr_html_()) < 40_000


def test_conflicts_are_a_table() -> None:
    repo = repository()
    first, second = repo.writable_session("main"), repo.writable_session("main")
    for session, value in ((first, 1), (second, 2)):
        zarr.open_array(session.store, path="group/temp")[:] = value
    first.commit("first")
    with pytest.raises(RebaseFailedError) as caught:
        second.commit("second", rebase_with=ConflictDetector())
    conflicts = caught.value.conflicts
    assert isinstance(conflicts, list)
    assert repr(conflicts).startswith("1 conflict\n")
    assert page(conflicts).rows("conflict")[0][:2] == ["ChunkDoubleUpdate", "/group/temp"]
    assert page(conflicts[0]).text.startswith("Conflict at /group/temp")
    many = Conflicts([Conflict(ConflictType.ChunkDoubleUpdate, HOSTILE, np.zeros((1000, 2), np.int64))] * 1000)
    assert "… and 980 more" in page(many).text


def test_a_storage_shows_no_secret() -> None:
    from arraystore import s3_storage

    storage = s3_storage(
        bucket="bucket", prefix="p", access_key_id="AKIAID", secret_access_key="hunter2hunter2", region="x"
    )
    shown = page(CountingStorage(storage))
    assert "s3://bucket/p" in shown.text
    assert "hunter2" not in shown.text
    assert "AKIAID" not in shown.text


def test_what_a_notebook_shows_of_a_session_is_not_read_by_it() -> None:
    repo = repository()
    session: Session = repo.writable_session("main", isolation="serializable")
    session._repr_html_()
    assert session.reads == repo.writable_session("main", isolation="serializable").reads
