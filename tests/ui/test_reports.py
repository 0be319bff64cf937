"""Reports and links: what they hold, and that nothing in them can end a script early."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import zarr

import arraystore
from arraystore._conflicts import Conflict, ConflictType
from arraystore.errors import InvalidInputError, RebaseFailedError, RefNotFoundError
from arraystore.ui import conflict_link, export_report
from arraystore.ui.assets import page_assets
from arraystore.ui.bundle import bundled_page, bundled_script
from arraystore.ui.views import overview
from tests.ui.conftest import World
from tests.ui.hostile import MARKUP, build_hostile


def views_of(path: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    report = json.loads(found[1])
    assert report.keys() == {"made", "version", "branch", "tip", "views"}
    return report["views"]


def test_a_report_holds_the_history_the_newest_snapshot_and_the_newest_differences(
    world: World, tmp_path: Path
) -> None:
    size, complete = export_report(world.storage, tmp_path / "report.html")
    assert complete
    views = views_of(tmp_path / "report.html")
    newest = world.ids["picked"]
    assert {"overview", "history&limit=200", f"tree&at={newest}", f"storage&at={newest}"} <= views.keys()
    assert f"preview&at={newest}&axes=&index=3,0,0&path=air/temp" in views
    assert f"diff&from={world.ids['rebased']}&to={newest}" in views
    assert f"diff-values&axes=&from={world.ids['first']}&index=0,2,3&path=air/temp&to={world.ids['second']}" in views
    assert size < 1 << 20


def test_a_report_without_room_says_so(world: World, tmp_path: Path) -> None:
    _, complete = export_report(world.storage, tmp_path / "report.html", max_bytes=3_000)
    assert not complete
    assert "overview" in views_of(tmp_path / "report.html")


def test_a_report_has_at_most_the_bytes_that_it_may_have(tmp_path: Path) -> None:
    storage = arraystore.in_memory_storage()
    with arraystore.Repository.create(storage).transaction("main", message="names") as store:
        for number in range(20):
            zarr.create_group(store, path=f"group{number}", attributes={"name": "<气温>" * 500})
    smallest, _ = export_report(storage, tmp_path / "report.html", max_bytes=0)
    size, complete = export_report(storage, tmp_path / "report.html", max_bytes=100_000)
    assert not complete
    assert 0 < size - smallest <= 100_000 + 20_000  # keys of views are not counted


def test_a_report_shows_a_branch_that_the_overview_leaves_out(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_MAX_BRANCHES", 1)
    export_report(world.storage, tmp_path / "report.html", branch="dev")
    assert f"tree&at={world.ids['dev']}" in views_of(tmp_path / "report.html")


def test_a_report_is_as_private_as_any_new_file(world: World, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        export_report(world.storage, tmp_path / "report.html", max_bytes=0)
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_report_of_nothing_leaves_no_file(world: World, tmp_path: Path) -> None:
    with pytest.raises(RefNotFoundError):
        export_report(world.storage, tmp_path / "report.html", branch="none")
    with pytest.raises(InvalidInputError, match="max_bytes"):
        export_report(world.storage, tmp_path / "report.html", max_bytes=-1)
    for path in (tmp_path, tmp_path / "none" / "report.html"):
        with pytest.raises(InvalidInputError, match="must be a file"):
            export_report(world.storage, path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_no_text_ends_the_data_or_the_script_of_a_report(tmp_path: Path) -> None:
    storage = arraystore.in_memory_storage()
    build_hostile(storage)
    export_report(storage, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<script") == page.count("</script>") == 2
    assert "<!--" not in page
    assert MARKUP not in page
    assert MARKUP in json.dumps(views_of(tmp_path / "report.html"), ensure_ascii=False).replace('\\"', '"')


def test_the_script_of_a_report_is_allowed_by_its_hash_only() -> None:
    page = bundled_page({"views": {}}, "<title>&")
    script = page[page.rindex("<script>") + 8 : page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "<title>&lt;title&gt;&amp;</title>" in page
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_every_module_is_in_the_script_once_with_what_it_imports_before_it() -> None:
    script = bundled_script()
    names = [name for name in page_assets() if name.endswith(".js")]
    places = {name: script.index(f'modules["{name}"] = ') for name in names}
    for name in names:
        assert script.count(f'modules["{name}"] = ') == 1
        for wanted in re.findall(r'from "\./([a-z]+\.js)"', page_assets()[name].data.decode()):
            assert places[wanted] < places[name]
    assert not re.search(r"^\s*(import|export) ", script, re.MULTILINE)


def test_a_link_of_conflicts_holds_them() -> None:
    conflicts = [
        Conflict(ConflictType.ChunkDoubleUpdate, MARKUP, np.array([[0, 1], [2, 3]]), "0" * 20, "both wrote them"),
        Conflict(ConflictType.DeleteOfDeletedNode, "/b"),
    ]
    link = conflict_link(RebaseFailedError("1" * 20, conflicts), "http://127.0.0.1:1/token/#/history")
    start, _, data = link.partition("?error=")
    assert start == "http://127.0.0.1:1/token/#/conflicts"
    found = json.loads(base64.urlsafe_b64decode(data))
    assert (found["onto"], found["more"]) == ("1" * 20, 0)
    assert [(row["kind"], row["path"], row["chunks"], row["count"]) for row in found["rows"]] == [
        ("ChunkDoubleUpdate", MARKUP, [[0, 1], [2, 3]], 2),
        ("DeleteOfDeletedNode", "/b", [], 0),
    ]


def test_a_link_of_many_conflicts_is_bounded() -> None:
    many = [Conflict(ConflictType.ChunkDoubleUpdate, f"/a{at}", np.zeros((9_999, 2), np.int64)) for at in range(500)]
    link = conflict_link(RebaseFailedError("1" * 20, many))
    found = json.loads(base64.urlsafe_b64decode(link.partition("?error=")[2]))
    assert (len(found["rows"]), found["more"], len(found["rows"][0]["chunks"])) == (200, 300, 400)
    assert len(link) < 2 << 20
