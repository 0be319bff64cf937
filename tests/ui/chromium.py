"""An installed Chromium or Chrome, and pages of it."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
VARIABLE = "ARRAYSTORE_CHROMIUM"
AXE = Path(__file__).parent / "axe" / "axe.min.js"


def find_chromium() -> str | None:
    """Return the path of a browser; None where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    return found or next((place for place in _PLACES if Path(place).exists()), None)


@contextmanager
def running_browser() -> Iterator[Any]:
    """Run a browser; skips the test, with a warning, where none is installed."""
    executable = find_chromium()
    if executable is None:
        reason = (
            f"no Chromium or Chrome was found, so THE PAGE OF `arraystore ui` IS NOT TESTED: install one "
            f"(apt-get install chromium), or set {VARIABLE}"
        )
        warnings.warn(reason, stacklevel=2)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, with everything that it did besides showing something."""

    def __init__(self, browser: Any, *, width: int = 1360, height: int = 860, dark: bool = False) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.problems.append("dialog"), dialog.dismiss()))
        self.page.on("console", self._said)

    def _said(self, message: Any) -> None:
        # a view that fails is a response with an error status, which the page shows
        harmless = ("Failed to load resource", "Canvas2D: Multiple readback")  # the latter of `colours`
        if message.type in ("error", "warning") and not message.text.startswith(harmless):
            self.problems.append(message.text)

    def open(self, address: str, ready: str) -> Any:
        """Open an address and wait for an element."""
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector(ready)
        self.page.wait_for_load_state("networkidle")
        return self.page

    def until(self, expression: str) -> None:
        """Wait until an expression is true; Playwright's own way would need a policy that allows `eval`."""
        for _ in range(300):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"did not become true: {expression}")

    def violations(self) -> list[str]:
        """Return what axe finds wrong with the page as it is."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = self.page.evaluate("tags => axe.run(document, {runOnly: tags})", tags)
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def colours(self, selector: str) -> int:
        """Count the colours of a canvas."""
        return int(
            self.page.eval_on_selector(
                selector,
                """canvas => {
                    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                    const colours = new Uint32Array(data.buffer);
                    return new Set(colours).size;
                }""",
            )
        )

    def close(self) -> None:
        """Close the page."""
        self.context.close()
