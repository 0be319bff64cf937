"""Draw the pictures of docs/notebooks.md: what cells of the gallery display, in a headless browser.

python tools/notebook_pictures.py [--output docs/images] [--chromium PATH]
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from run_notebook import Output, code_cells, run_cells

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "examples" / "gallery.ipynb"
CELLS = ("session", "chunks", "repository", "history", "ancestry", "diff-plot", "conflicts", "statistics")
DOTS_PER_INCH = 110
PAGE = '<meta charset="utf-8"><body style="font-family:system-ui,sans-serif;margin:0"><div id="shown">{}</div></body>'


def displays() -> dict[str, Output]:
    """Run the gallery, and return what the chosen cells display, by their ids."""
    notebook = json.loads(GALLERY.read_text(encoding="utf-8"))
    outputs = zip(code_cells(notebook), run_cells(notebook, GALLERY.name, DOTS_PER_INCH), strict=True)
    return {cell["id"]: shown[-1]["data"] for cell, shown in outputs if cell["id"] in CELLS}


def draw(data: Output, page: Any) -> bytes:
    """Return a display as a picture."""
    if "image/png" in data:
        return base64.b64decode(data["image/png"])
    page.set_content(PAGE.format("".join(data["text/html"])))
    file = io.BytesIO()
    Image.open(io.BytesIO(page.locator("#shown").screenshot())).convert("RGB").quantize(64).save(file, "PNG")
    return file.getvalue()


def main() -> int:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    chosen = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chosen.chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 860, "height": 600}, device_scale_factor=1.5)
        for name, data in displays().items():
            (chosen.output / f"notebook-{name}.png").write_bytes(draw(data, page))
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
