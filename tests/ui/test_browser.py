"""The page in a browser: clicks, keys, what is drawn, and what it must never do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import arraystore
from arraystore.errors import RebaseFailedError
from arraystore.ui import conflict_link, export_report
from arraystore.ui.bundle import bundled_page
from arraystore.ui.server.run import prepare
from tests.ui.chromium import Watched, running_browser
from tests.ui.conftest import World
from tests.ui.hostile import MARKUP, build_hostile

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("browser")]

VIEWS = ("history", "data", "compare", "storage", "conflicts")
READY = {
    "history": ".details .facts", "data": ".chunks .key", "compare": ".changes-all h2", "storage": ".tile",
    "conflicts": ".pickers select",
}  # fmt: skip


@contextmanager
def serving(storage: arraystore.Storage) -> Iterator[str]:
    server = prepare(storage)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def url(world: World) -> Iterator[str]:
    with serving(world.storage) as address:
        yield address


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    page = Watched(browser)
    yield page
    page.close()
    assert page.problems == []


def test_the_history_is_searched_and_moved_through_with_keys(watched: Watched, url: str, world: World) -> None:
    page = watched.open(url, ".details .facts")
    assert page.locator(".virtual-row:visible").count() == 6
    assert page.locator(".virtual-row .chip.branch").all_inner_texts() == ["main", "dev"]
    assert page.locator(".virtual-row .mark-chip").all_inner_texts() == [
        "cherry-pick",
        "rebased over 1",
        "merged 1 fork",
    ]
    assert watched.colours("canvas.graph") > 4
    page.focus(".virtual")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.wait_for_selector(f".details code:text('{world.ids['first']}')")
    assert page.locator(".details .message").inner_text() == "first"
    assert page.locator(".details .body").inner_text() == "with a body"
    assert world.ids["first"] in page.url
    page.wait_for_selector(".details .change.created")
    page.keyboard.press("Enter")
    page.wait_for_selector(".crumbs")
    page.go_back()
    page.wait_for_selector("#search")
    page.fill("#search", "second")
    watched.until("document.querySelector('.bar .hint').textContent.startsWith('1 snapshot')")
    page.fill("#search", "")
    page.select_option("#branch", "branch dev")
    watched.until("document.querySelector('.bar .hint').textContent.startsWith('3 snapshots')")


def test_a_key_that_is_held_asks_for_the_last_row_only(watched: Watched, url: str, world: World) -> None:
    page = watched.open(url, ".details .facts")
    page.focus(".virtual")
    asked = len(watched.requests)
    # In one call, so that no pause between two of them is that of a slow machine.
    page.eval_on_selector(
        ".virtual",
        """(list) => {
            for (let pressed = 0; pressed < 4; pressed++)
                list.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', repeat: true, bubbles: true}))
        }""",
    )
    page.wait_for_selector(f".details code:text('{world.ids['first']}')")
    assert {each for each in watched.requests[asked:] if "snapshot?" in each} == {
        f"{url}api/snapshot?id={world.ids['first']}"
    }


def test_the_history_follows_its_address(watched: Watched, url: str, world: World) -> None:
    page = watched.open(f"{url}#/history?q=second&id={world.ids['second']}", ".details .facts")
    status = "document.querySelector('.bar .hint').textContent"
    assert page.evaluate(status) == "1 snapshot"
    page.evaluate("location.hash = '#/history?branch=branch%20dev'")
    watched.until(f"{status} === '3 snapshots'")
    assert (page.input_value("#search"), page.input_value("#branch")) == ("", "branch dev")
    assert page.locator(".details a:text('Compare with main')").count() == 1
    page.click("[data-view=history]")
    watched.until(f"{status} === '6 snapshots'")
    page.evaluate(f"location.hash = '#/history?id={world.ids['picked']}'")
    page.wait_for_selector(f".details code:text('{world.ids['picked']}')")
    assert page.locator(".details a:text('Compare with main')").count() == 0
    page.goto(f"{url}#/conflicts?error=e30")
    page.goto(f"{url}#/conflicts?error=%40")
    assert "A part of this address is missing" in page.locator(".problem").inner_text()


def test_how_an_array_is_looked_at_is_in_the_address(watched: Watched, url: str, world: World) -> None:
    page = watched.open(f"{url}#/data/{world.ids['second']}?path=/air/temp", ".chunks .key")
    page.click("[data-mode=time]")
    page.click("text=Table")
    page.select_option(".chunks .pick:has-text('Down') select", "0")
    watched.until("location.hash.includes('grid=0')")
    page = watched.open(page.url, ".chunks .ramp")
    assert page.get_attribute("[data-mode=time]", "aria-pressed") == "true"
    assert page.get_attribute("[data-mode=kind]", "aria-pressed") == "false"
    assert page.input_value(".chunks .pick:has-text('Down') select") == "0"
    assert page.locator(".numbers-table").count() == 1
    assert page.title() == "/air/temp – Data – arraystore"
    page.click(".tree .virtual-row:visible:has-text('packed')")
    watched.until("document.title === '/air/packed – Data – arraystore'")
    page.go_back()
    page.wait_for_selector(".numbers-table")
    page.goto(f"{url}#/compare?from={world.ids['first']}&to={world.ids['second']}&path=/air/temp")
    page.click("button.link:has-text('/air') >> nth=1")
    page.wait_for_selector(".diff .added")
    page.go_back()
    page.wait_for_selector(".crumbs:has-text('/air/temp')")


def test_values_are_drawn_and_sliced(watched: Watched, url: str, world: World) -> None:
    page = watched.open(f"{url}#/data/{world.ids['picked']}?path=/air/temp", ".chunks .key")
    assert page.locator(".crumbs").inner_text().replace("\n", "") == "root/air/temp"
    assert watched.colours(".plane canvas") > 40
    page.focus(".plane canvas")
    page.keyboard.press("ArrowRight")
    assert page.locator(".plane .reading").inner_text() == "lat 10, lon 5: 29 K"
    page.locator(".values .slide input").first.focus()
    page.keyboard.press("End")
    watched.until("document.querySelector('.values .slide output').textContent === '2000-02-30'")
    assert "index=3" in page.url
    assert "7 to 7 K" in page.locator(".values .numbers").inner_text()
    page.select_option(".pick:has-text('Across') select", "0")
    watched.until("document.querySelector('.values .slide span').textContent === 'lon'")
    page.click("text=Table")
    assert page.locator(".numbers-table tbody tr").count() == 6
    page.reload()
    page.wait_for_selector(".numbers-table")
    page.click("text=Table")
    page.wait_for_selector(".plane canvas")
    assert "axes=1%2C0" in page.url


def test_chunks_are_read_with_keys_and_coloured_by_what_one_asks(watched: Watched, url: str, world: World) -> None:
    page = watched.open(f"{url}#/data/{world.ids['second']}?path=/air/temp", ".chunks .key")
    assert "4 of 4 initialised, 1 changed by this commit" in page.locator(".chunks .numbers").inner_text()
    page.focus(".grid canvas")
    page.keyboard.press("ArrowRight")
    assert "(0, 0, 0)" in page.locator(".grid .reading").inner_text()
    assert "changed by this commit" in page.locator(".grid .reading").inner_text()
    for mode in ("changed", "time", "nbytes", "pack", "kind"):
        page.click(f"[data-mode={mode}]")
        assert page.get_attribute(f"[data-mode={mode}]", "aria-pressed") == "true"
        assert watched.colours(".grid canvas") > 1


def test_time_travel_keeps_array_and_slice(watched: Watched, url: str, world: World) -> None:
    page = watched.open(f"{url}#/data/branch%3Amain?path=/air/temp&index=0%2C0%2C0", ".chunks .key")
    assert "5 of 5 snapshots on main" in page.locator(".timeline-text").inner_text()
    before = page.locator(".values .numbers").inner_text()
    slider = page.locator(".timeline input")
    slider.focus()
    page.keyboard.press("Home")
    watched.until("document.querySelector('.timeline-text').textContent.includes('1 of 5')")
    page.wait_for_selector("text=An empty snapshot")
    page.locator(".timeline .step").last.click()
    watched.until("document.querySelector('.values .numbers')?.textContent.startsWith('0 to 47')")
    assert before.startswith("-1 to 47")
    assert world.ids["first"] in page.url
    page.select_option(".timeline select", "branch:dev")
    watched.until("location.hash.includes('dev')")
    watched.until("document.querySelector('.timeline-text').textContent.includes('on dev')")


def test_two_snapshots_are_compared(watched: Watched, url: str, world: World) -> None:
    address = f"{url}#/compare?from={world.ids['first']}&to={world.ids['second']}&path=/air/temp&index=0%2C0%2C0"
    page = watched.open(address, ".triple canvas")
    assert "12 items differ here" in page.locator(".values .numbers").inner_text()
    page.wait_for_selector(".grid canvas")
    assert watched.colours(".main-figure canvas") > 10
    page.click("button.link:has-text('/air') >> nth=1")
    page.wait_for_selector(".diff .added")
    assert page.locator(".diff .added").inner_text().strip() == '+    "title": "Warm air"'
    page.click("[aria-label='Swap the two']")
    page.wait_for_selector(".diff .removed:has-text('Warm air')")


def test_what_was_appended_is_shown_beside_nothing(browser: Any) -> None:
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    with repo.transaction("main", message="one day") as store:
        array = zarr.create_array(store, name="cube", shape=(1, 2, 3), chunks=(1, 2, 3), dtype="f4")
        array[...] = 280
    with repo.transaction("main", message="two days") as store:
        array = zarr.open_array(store, path="cube")
        array.resize((2, 2, 3))
        array[1] = 290
    with serving(storage) as url:
        watched = Watched(browser)
        page = watched.open(f"{url}#/compare?path=/cube", ".triple canvas")
        assert page.locator(".values .numbers").inner_text() == "6 items in one of the two only"
        watched.close()
    assert watched.problems == []


def test_an_empty_repository_is_no_error(browser: Any) -> None:
    storage = arraystore.in_memory_storage()
    arraystore.Repository.create(storage)
    watched = Watched(browser)
    with serving(storage) as url:
        for view, ready in {**READY, "data": "text=An empty snapshot", "compare": "text=are equal"}.items():
            page = watched.open(f"{url}#/{view}", ready)
            assert page.locator(".problem").count() == 0
    watched.close()
    assert watched.problems == []


def test_axes_have_round_numbers_and_dates(watched: Watched, url: str, world: World) -> None:
    page = watched.open(f"{url}#/data/{world.ids['picked']}?path=/air/temp", ".chunks .key")
    texts = """async () => {
        const written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text) { written.push(text); };
        document.querySelector('.plane canvas').dispatchEvent(new PointerEvent('pointerleave'));
        CanvasRenderingContext2D.prototype.fillText = write;
        return written;
    }"""
    page.focus(".plane canvas")
    page.keyboard.press("ArrowRight")
    written = page.evaluate(texts)
    assert {"-40", "0", "40", "lat (degrees)", "lon", "2", "4", "K"} <= set(written)


@pytest.fixture(scope="module")
def extremes() -> Iterator[tuple[str, dict[str, str]]]:
    """Serve arrays of values that are hard to draw."""
    storage, ids = arraystore.in_memory_storage(), {}
    repo = arraystore.Repository.create(storage)
    session = repo.writable_session("main")
    slices = np.concatenate([np.full((1, 3, 4), np.nan), 280 + np.arange(12.0).reshape(1, 3, 4)])
    arrays = {
        "ids": 1_700_000_000_000_000_000 + 256 * np.arange(20), "constant": np.full(3, 1.7e18), "slices": slices,
        "vast": np.array([-1e308, 1e308]), "infinite": np.array([[1, np.inf], [-np.inf, 2]]), "empty": np.empty(0),
        "near": 1_700_000_000_000_000_000 + np.array([0, 256]), "words": np.array(["a", "b"]),
        "wide": np.zeros((60, 50)),
    }  # fmt: skip
    for path, values in arrays.items():
        chunks = (1, *values.shape[1:]) if values.ndim == 3 else [max(1, size) for size in values.shape]
        array = zarr.create_array(session.store, name=path, shape=values.shape, chunks=chunks, dtype=values.dtype)
        array[...] = values
    ids["before"] = session.commit("before")
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="words")[1] = "c"
    zarr.open_array(session.store, path="slices")[1] = 300
    del zarr.open_group(session.store)["ids"]
    ids["after"] = session.commit("after")
    with serving(storage) as address:
        yield address, ids


@pytest.mark.parametrize("path", ["ids", "near", "constant", "vast", "infinite", "empty"])
def test_values_of_any_size_are_drawn(watched: Watched, extremes: tuple[str, dict[str, str]], path: str) -> None:
    url, ids = extremes
    page = watched.open(f"{url}#/data/{ids['before']}?path=/{path}", ".chunks .numbers:not(:empty)")
    assert page.locator(".problem").count() == 0
    assert page.locator(".values canvas").count() == (path != "empty")
    if path == "ids":
        assert page.inner_text(".values .numbers").startswith("1700000000000000000 to 17000000000000049")


def test_a_slice_without_values_leaves_the_colours_to_the_others(
    watched: Watched, extremes: tuple[str, dict[str, str]]
) -> None:
    url, ids = extremes
    page = watched.open(f"{url}#/data/{ids['before']}?path=/slices", ".values canvas")
    slider = page.locator(".values input[type=range]")
    slider.fill("1")
    watched.until("document.querySelector('.values .numbers').textContent.startsWith('280 to 291')")
    darkest = "(c => [...c.getContext('2d').getImageData(70, c.height * 0.2, 1, 1).data].slice(0, 3))"
    assert page.evaluate(f"{darkest}(document.querySelector('.values canvas'))") == [68, 1, 84]


def test_what_is_read_out_is_of_the_slice_that_is_shown(watched: Watched, extremes: tuple[str, dict[str, str]]) -> None:
    url, ids = extremes
    page = watched.open(f"{url}#/data/{ids['before']}?path=/slices&index=1,0,0&chunks=changed", ".chunks .key")
    page.focus(".values canvas")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text(".values .reading").endswith(": 285")
    page.focus(".chunks canvas")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".chunks .reading").endswith("changed by this commit")
    page.click("button[aria-label='Newer snapshot']")
    watched.until("document.querySelector('.values .reading').textContent.endsWith(': 300')")
    watched.until("!document.querySelector('.chunks .reading').textContent.endsWith('changed by this commit')")


def test_an_array_of_one_side_is_shown_alone_and_texts_side_by_side(
    watched: Watched, extremes: tuple[str, dict[str, str]]
) -> None:
    url, ids = extremes
    between = f"{url}#/compare?from={ids['before']}&to={ids['after']}"
    page = watched.open(f"{between}&path=/ids", ".values canvas")
    assert ids["before"] in page.locator(".node-head a.button").get_attribute("href")
    page.click("button[data-path='words']")
    page.wait_for_selector("td.differs")
    assert page.locator("td.differs").all_inner_texts() == ["b", "c"]
    assert page.inner_text(".values .numbers") == "1 item differs here"


def test_a_table_says_how_much_of_the_array_it_has(watched: Watched, extremes: tuple[str, dict[str, str]]) -> None:
    url, ids = extremes
    page = watched.open(f"{url}#/data/{ids['before']}?path=/wide&table=1", ".numbers-table")
    assert "44 of 60 along dimension 0; 44 of 50 along dimension 1" in page.inner_text(".values-body")


@pytest.mark.parametrize(
    "address", ["constructor", "data/{}?path=/slices&chunks=constructor", "conflicts?error=eyJyb3dzIjpbbnVsbF19"]
)
def test_an_address_that_names_no_view_or_part_is_no_failure(
    watched: Watched, extremes: tuple[str, dict[str, str]], address: str
) -> None:
    url, ids = extremes
    page = watched.open(f"{url}#/{address.format(ids['before'])}", ".details .facts, .chunks .key, .conflict")
    assert page.locator(".problem").count() == 0


def test_the_tabs_lead_on_from_a_snapshot_that_is_not_there(
    watched: Watched, extremes: tuple[str, dict[str, str]]
) -> None:
    page = watched.open(f"{extremes[0]}#/data/{'0' * 20}", ".problem")
    page.click(".tab[data-view=data]")
    page.wait_for_selector(".chunks .key")


def test_storage_is_told_on_request(watched: Watched, url: str) -> None:
    page = watched.open(f"{url}#/storage/branch%3Amain", ".tile")
    assert page.locator(".bars tbody tr").count() >= 4
    page.click("text=List objects and packs")
    page.wait_for_selector("text=no packs")
    page.click("text=What would a collection free?")
    page.wait_for_selector("text=Nothing was deleted")


def test_conflicts_of_a_failed_rebase_are_a_link(watched: Watched, url: str) -> None:
    repo = arraystore.Repository.create(arraystore.in_memory_storage())
    with repo.transaction("main", message="zeros") as store:
        zarr.create_array(store, name="a", shape=(6, 6), chunks=(2, 2), dtype="i4")[...] = 0
    ours, theirs = repo.writable_session("main"), repo.writable_session("main")
    for session in (theirs, ours):
        zarr.open_array(session.store, path="a")[:3, :3] = 1
    theirs.commit("theirs")
    with pytest.raises(RebaseFailedError) as failed:
        ours.commit("ours", rebase_with=arraystore.ConflictDetector())
    page = watched.open(conflict_link(failed.value, url), ".conflict canvas")
    assert page.locator(".conflict h2").inner_text() == "/a"
    assert page.locator(".conflict .chip").all_inner_texts() == ["ChunkDoubleUpdate", "4 chunks"]
    assert page.locator(".conflict code").inner_text() == "(0, 0) (0, 1) (1, 0) (1, 1)"


@pytest.mark.parametrize(("dark", "width"), [(False, 1360), (True, 1360), (False, 380)], ids=["light", "dark", "phone"])
def test_contrast_names_and_labels_pass_axe(browser: Any, url: str, world: World, dark: bool, width: int) -> None:
    watched = Watched(browser, dark=dark, width=width)
    found: dict[str, list[str]] = {}
    for view in VIEWS:
        place = f"/{world.ids['second']}?path=/air/temp" if view == "data" else ""
        watched.open(f"{url}#/{view}{place}", READY[view])
        found[view] = watched.violations()
    watched.close()
    assert found == {key: [] for key in VIEWS}


KIND = "(each.className || each.tagName) + '|' + (each.dataset.mode || each.dataset.view || each.type || '')"
FOCUSABLE = "a, button, input, select, canvas[tabindex], summary, [tabindex='0']"


@pytest.mark.parametrize("view", VIEWS)
def test_the_keyboard_alone_reaches_everything(watched: Watched, url: str, world: World, view: str) -> None:
    place = {"data": f"/{world.ids['second']}?path=/air/temp",
             "compare": f"?from={world.ids['first']}&to={world.ids['second']}&path=/air/temp"}  # fmt: skip
    page = watched.open(f"{url}#/{view}{place.get(view, '')}", READY[view])
    reached: set[str] = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"[document.activeElement].map(each => {KIND})[0]"))
    wanted = page.evaluate(
        f"""[...document.querySelectorAll("{FOCUSABLE}")]
        .filter(each => each.checkVisibility() && each.tabIndex >= 0 && !each.disabled).map(each => {KIND})"""
    )
    assert len(set(wanted)) > (15 if view == "data" else 8)
    assert set(wanted) <= reached
    address = page.url
    page.focus(".skip")
    page.keyboard.press("Enter")
    assert (page.evaluate("document.activeElement.id"), page.url) == ("main", address)


def test_rows_of_a_small_screen_keep_their_parts_apart(browser: Any) -> None:
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="many", shape=(2,) * 20, chunks=(2,) * 20, dtype="u1")
    session.commit("An array of many dimensions")
    repo.create_branch("experiments-with-a-long-name/mixed-layer-depth", repo.lookup_branch("main"))
    watched = Watched(browser, width=390, height=800)
    rights = "(parts) => parts.map((part) => part.getBoundingClientRect()).map((box) => [box.left, box.right])"
    with serving(storage) as url:
        page = watched.open(url, ".details .facts")
        row = ".virtual-row:visible:has-text('many dimensions')"
        (_, end), (start, _) = page.eval_on_selector_all(f"{row} .subject, {row} time", rights)
        assert end <= start
        (left, right) = page.eval_on_selector_all(f"{row} .subject .text", rights)[0]
        assert right - left > 40
        page = watched.open(f"{url}#/data/branch%3Amain", ".chunks .key")
        selected = ".tree .virtual-row[aria-selected=true] > :not(.icon)"
        (left, right), (start, _) = page.eval_on_selector_all(selected, rights)
        assert right - left > 100
        assert right <= start
        tops = "(steps) => steps.map((step) => step.getBoundingClientRect().top)"
        places = page.eval_on_selector_all(".timeline .step", tops)
        assert len(set(places)) == 1
        page.fill(".tree input", "nothing like it")
        watched.until("document.querySelector('.tree > .hint').textContent.startsWith('0 found')")
    watched.close()
    assert watched.problems == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_small_screen_needs_no_scrolling_to_the_side(browser: Any, url: str, view: str) -> None:
    watched = Watched(browser, width=380, height=760)
    page = watched.open(f"{url}#/{view}", READY[view])
    wide = page.evaluate("[document.documentElement.scrollWidth, document.getElementById('main').scrollWidth]")
    watched.close()
    assert max(wide) <= 380


def test_a_hostile_repository_stays_text_and_nothing_leaves_the_machine(browser: Any) -> None:
    storage = arraystore.in_memory_storage()
    ids = build_hostile(storage)
    watched = Watched(browser)
    with serving(storage) as url:
        page = watched.open(url, ".details .facts")
        page.locator(".virtual-row").nth(1).click()
        page.wait_for_selector(".details .body")
        assert MARKUP in page.locator(".details").inner_text()
        page.goto(f"{url}#/data/{ids['broken']}?path=/names")
        page.wait_for_selector(".node table")
        assert "\u202e" not in page.locator("body").inner_text()
        assert page.locator(".tree .virtual-row:has-text('\ufffdgnp.exe')").count() == 1
        assert page.locator(".tree .virtual-row:has-text('ctrl\ufffd[31m')").count() == 1
        for row in range(page.locator(".tree .virtual-row:visible").count()):
            page.locator(".tree .virtual-row:visible").nth(row).click()
            watched.until("document.querySelector('.node').children.length > 0")
        page.wait_for_load_state("networkidle")
        for view in VIEWS:
            watched.open(f"{url}#/{view}", READY[view] if view != "data" else ".node-head")
        assert page.evaluate("window.broken") is None
        assert page.evaluate("({}).broken") is None
        assert page.locator("main img, main script, main iframe, main style").count() == 0
        origin = "/".join(url.split("/")[:3])
        assert [each for each in watched.requests if not each.startswith((origin, "about:blank"))] == []
    watched.close()
    assert watched.problems == []


def test_a_damaged_branch_leaves_the_others_usable(browser: Any) -> None:
    from tests.ui.hostile import damage

    storage = arraystore.in_memory_storage()
    ids = build_hostile(storage)
    damage(storage, "/branch/main/")
    watched = Watched(browser)
    with serving(storage) as url:
        page = watched.open(f"{url}#/data/branch%3Amain", ".problem")
        assert "damaged" in page.locator(".problem").inner_text()
        page = watched.open(f"{url}#/data/branch%3Aa%2Fb%2Fc?path=/names", ".node table")
        assert ids["names"]
    watched.close()
    assert watched.problems == []


SCROLL = """() => new Promise(done => {
    const list = document.querySelector('.virtual');
    let frames = 0;
    const step = () => {
        list.scrollTop += 400;
        frames += 1;
        if (frames < 60) requestAnimationFrame(step);
        else done(document.querySelectorAll('.virtual-row').length);
    };
    requestAnimationFrame(step);
})"""


def test_ten_thousand_commits_are_a_few_elements_and_scroll_to_the_end(browser: Any, tmp_path: Path) -> None:
    count = 10_000
    rows = range(count)
    history = {
        "ids": [f"{at:020d}" for at in rows],
        "parents": [*(min(at + 1 + at % 2, count - 1) for at in rows[:-1]), -1],
        "times": [1.7e12 - at * 6e4 for at in rows],
        "subjects": [f"Commit {at}" for at in rows],
        "lanes": [at % 2 for at in rows],
        "labels": {"0": ["main"], "1": ["topic"]},
        "marks": {},
        "sources": {str(at): f"{at + 700:020d}" for at in range(0, count - 700, 2)},
        "rebased": {},
        "forks": {},
        "complete": True,
    }
    main = {"name": "main", "snapshot": history["ids"][0], "time": 0, "broken": None}
    overview = {"location": "nowhere", "status": "online", "tags": [], "branches": [main]}
    columns = ("ids", "parents", "times", "subjects", "lanes")
    newest = {**history, **{name: history[name][:200] for name in columns}, "complete": False}  # type: ignore[index]
    newest["parents"] = [parent if parent < 200 else -2 for parent in newest["parents"]]
    views = {"overview": {"result": overview}, "history&limit=200": {"result": newest}, "history": {"result": history}}
    file = tmp_path / "many.html"
    file.write_text(bundled_page({"made": "now", "version": "0", "branch": "main", "views": views}, "many"))
    watched = Watched(browser)
    page = watched.open(f"file://{file}#/history?id={history['ids'][5_000]}", ".virtual-row")  # type: ignore[index]
    page.wait_for_selector(".virtual-row[aria-selected=true]:visible:has-text('Commit 5000')")
    assert page.locator(".virtual-row").count() < 60
    page.focus(".virtual")
    page.keyboard.press("End")
    page.wait_for_selector(".virtual-row:visible:has-text('Commit 9999')")
    assert page.locator(".virtual-row").count() < 80
    page.keyboard.press("Home")
    drawn = page.evaluate(SCROLL)
    assert drawn < 80
    page.fill("#search", "commit 77")
    watched.until("document.querySelector('.bar .hint').textContent.startsWith('111 snapshots')")
    watched.close()
    assert watched.problems == []


def test_a_thousand_arrays_are_filtered(browser: Any) -> None:
    storage = arraystore.in_memory_storage()
    repo = arraystore.Repository.create(storage)
    with repo.transaction("main", message="many") as store:
        for number in range(1_000):
            zarr.create_array(store, name=f"g{number // 100}/a{number}", shape=2, chunks=1, dtype="i1")
    watched = Watched(browser)
    with serving(storage) as url:
        page = watched.open(f"{url}#/data/branch%3Amain", ".node-head")
        assert page.locator(".tree .hint >> nth=-1").inner_text() == "1,000 arrays, 11 groups"
        assert page.locator(".tree .virtual-row").count() < 60
        page.fill(".tree input", "a77")
        watched.until("document.querySelectorAll('.tree .virtual-row:not([hidden])').length === 11")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        watched.until("document.querySelector('.crumbs').textContent.includes('a77')")
    watched.close()
    assert watched.problems == []


def test_a_report_is_the_page_without_a_server(browser: Any, world: World, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    size, complete = export_report(world.storage, file)
    assert (file.stat().st_size, complete) == (size, True)
    watched = Watched(browser)
    address = f"file://{file}"
    page = watched.open(address, ".details .facts")
    assert page.locator(".virtual-row:visible").count() == 6
    page.wait_for_selector(".details .change")
    page.click("[data-view=data]")
    page.wait_for_selector(".plane canvas")
    page.wait_for_selector(".chunks .key")
    assert watched.colours(".plane canvas") > 40
    page.locator(".slide input:enabled").first.focus()
    page.keyboard.press("End")
    watched.until("document.querySelector('.values .slide output').textContent === '2000-02-30'")
    page.click("[data-view=storage]")
    page.wait_for_selector(".tile")
    page.click("[data-view=compare]")
    page.wait_for_selector(".changes-all h2")
    page.goto(f"{address}#/compare?from={world.ids['dev']}&to={world.ids['first']}")
    page.wait_for_selector(".node .problem:has-text('Not in this report')")
    assert page.locator(".pickers select").count() == 2
    page.click("[data-view=conflicts]")
    page.wait_for_selector("text=A report shows those of a link")
    assert page.locator(".view-conflicts select").count() == 0
    page.wait_for_timeout(200)
    assert {each.split("#")[0] for each in watched.requests} == {address}
    watched.close()
    assert watched.problems == []
