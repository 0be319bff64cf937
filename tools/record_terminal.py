"""Record a terminal in which a few commands run, as a picture in SVG: ``docs/images/terminal.svg``.

python tools/record_terminal.py [TARGET]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "images" / "terminal.svg"
WIDTH = 96

_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)

PREPARE = """
import numpy as np, zarr, arraystore
repo = arraystore.Repository.create(arraystore.local_filesystem_storage("climate"))
with repo.transaction("main", message="a year of rain over Europe, empty") as store:
    group = zarr.create_group(store, path="europe")
    group.create_array("rain", shape=(365, 40, 40), chunks=(73, 20, 20), dtype="f4", dimension_names=("time", "y", "x"))
with repo.transaction("main", message="January to May") as store:
    zarr.open_array(store, path="europe/rain")[:146] = np.random.default_rng(0).random((146, 40, 40), dtype="f4")
repo.create_tag("v1", repo.lookup_branch("main"))
with repo.transaction("main", message="June to October") as store:
    zarr.open_array(store, path="europe/rain")[146:292] = 1
"""
COMMANDS = (
    "arraystore log climate --oneline",
    "arraystore tree climate",
    "arraystore diff climate v1 main",
    "arraystore revert climate main --message 'that rain was wrong'",
    "arraystore verify climate --level chunks",
)


def main(target: Path) -> None:
    """Run the commands in a repository of their own, and draw what they print."""
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-c", PREPARE], check=True, cwd=place, env=environment)
        for command in COMMANDS:
            console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
            run = f"{sys.executable} -m arraystore.cli{command.removeprefix('arraystore')}"
            done = subprocess.run(
                run, shell=True, check=True, cwd=place, env=environment, capture_output=True, text=True
            )
            console.print(Text.from_ansi(done.stdout.rstrip("\n")))
            console.print()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Without the fonts of another site, which the picture would ask for.
    target.write_text(_FONT.sub("", console.export_svg(title="arraystore")))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
