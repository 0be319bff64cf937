"""Draw the pictures of docs/ui.md: every view of the page, on real data, in a headless browser.

    python tools/ui_screenshots.py [--output docs/images] [--chromium PATH]

The data are the scenarios of `ui_repository.py`; the clock of the page is that of their history, so that the pictures
change only when the page does.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ui_repository
import zarr
from playwright.sync_api import sync_playwright

import arraystore
from arraystore.errors import RebaseFailedError
from arraystore.ui import conflict_link
from arraystore.ui.server.run import prepare

ROOT = Path(__file__).parents[1]
NOW = ui_repository.NOW


@dataclass(frozen=True)
class Shot:
    """One picture."""

    name: str
    address: str
    ready: str
    act: Callable[[Any], None] = lambda page: None
    width: int = 1280
    height: int = 800
    dark: bool = False


def shots(repo: arraystore.Repository, conflicts: str) -> list[Shot]:
    """Return all pictures."""
    branch = "branch%3Ascenario%2Fa1b"
    air = f"#/data/{branch}?path=/climate/air_temperature&index=239%2C0%2C0"
    warming = f"#/compare?from=tag%3Ahistorical-1.0&to={branch}&path=/climate/decade_mean"
    fixed = repo.lookup_branch("main")
    return [
        Shot("ui-history", f"#/history?id={fixed}", ".details .change", _show_forks),
        Shot("ui-data", air, ".chunks .key", _at_chunk, height=1120),
        Shot("ui-compare", warming, ".main-figure canvas", height=1060),
        Shot("ui-metadata", warming.replace("/decade_mean", ""), ".diff .added", height=520),
        Shot("ui-storage", f"#/storage/{branch}", ".tile", _list_objects, height=1080),
        Shot("ui-conflicts", conflicts, ".conflict canvas", height=520),
        Shot("ui-dark", "#/data/branch%3Amain?path=/ocean/tos&index=2%2C0%2C0", ".chunks .key", dark=True, height=900),
        Shot("ui-small", air, ".chunks .key", width=400, height=860),
    ]


def _show_forks(page: Any) -> None:
    page.eval_on_selector(".virtual", "list => { list.scrollTop = 14 * 36; }")
    page.wait_for_timeout(200)


def _at_chunk(page: Any) -> None:
    page.click("[data-mode=time]")
    page.focus(".grid canvas")
    page.keyboard.press("End")


def _list_objects(page: Any) -> None:
    page.click("text=List objects and packs")
    page.wait_for_selector(".columns.small")


def failed_rebase(repo: arraystore.Repository) -> str:
    """Return the link of a rebase that fails; nothing is committed."""
    branch = "scenario/e1"
    late = repo.writable_session(branch, isolation="snapshot")
    other = arraystore.Repository.open(repo.storage).writable_session(branch)
    for session, value in ((other, 1.0), (late, 2.0)):
        array = zarr.open_array(session.store, path=ui_repository.AIR)
        array[100:160] = array[100:160] + value
        session.write(ui_repository.NORMAL, (slice(0, 19), slice(0, 25)), value)
    other.commit("Correct the sixties, the seventies and others by 1 K")
    try:
        late.commit("Correct them by 2 K", rebase_with=arraystore.ConflictDetector())
    except RebaseFailedError as error:
        return conflict_link(error)
    raise AssertionError("the rebase must fail")


def draw(url: str, all_shots: list[Shot], output: Path, executable: str) -> None:
    """Open each address and save what it looks like."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for shot in all_shots:
            context = browser.new_context(
                viewport={"width": shot.width, "height": shot.height}, device_scale_factor=1.5,
                color_scheme="dark" if shot.dark else "light", locale="en-GB", timezone_id="UTC",
            )  # fmt: skip
            page = context.new_page()
            page.clock.set_fixed_time(datetime.fromtimestamp(NOW, UTC))
            page.goto(url + shot.address)
            page.wait_for_selector(shot.ready)
            page.wait_for_load_state("networkidle")
            shot.act(page)
            page.wait_for_timeout(300)
            page.eval_on_selector("#place", "place => { place.textContent = 's3://climate-archive/north-america'; }")
            page.screenshot(path=output / f"{shot.name}.png")
            context.close()
        browser.close()


def main() -> int:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("names", nargs="*", help="pictures to draw; all by default")
    chosen = parser.parse_args()
    if chosen.chromium is None:
        print("no Chromium was found: install one, or name it with --chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="ui-") as directory:
        storage = arraystore.local_filesystem_storage(directory, fsync=False)
        repo = ui_repository.build(storage)
        link = ui_repository.at_end_of_history(lambda: failed_rebase(arraystore.Repository.open(storage)))
        repo.wait_for_maintenance()
        server = prepare(storage)
        threading.Thread(target=server.run, daemon=True).start()
        wanted = [shot for shot in shots(repo, link) if not chosen.names or shot.name in chosen.names]
        draw(server.url, wanted, chosen.output, chosen.chromium)
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
