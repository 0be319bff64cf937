"""The forms of a diff: each shows everything, or says how much it leaves out, and none is fooled by names."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
from rich.console import Console

from arraystore import Diff

MANY = Diff(
    new_arrays={f"/a{i:03d}" for i in range(50)},
    deleted_groups={"/old"},
    updated_files={"/notes.txt"},
    moved_nodes={"/x": "/y"},
    updated_chunks={
        "/few": np.array([[0, 1], [2, 3]]),
        "/many": np.stack([np.arange(10), np.arange(10) * 2], axis=1),
        "/scalar": np.empty((1, 0), dtype=np.int64),
    },
)
HOSTILE = Diff(new_groups={"/<script>`x``\n- y", "/[bold]z"})


def _shown(diff: Diff, width: int = 200) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(diff)
    return capture.get()


def test_markdown_cuts_long_lists_and_counts_the_rest() -> None:
    text = MANY.to_markdown()
    assert "**New arrays** (50)" in text
    assert "- `/a019`\n- … and 30 more\n" in text
    assert "- `/x` → `/y`" in text
    assert "- `/few`: 2 chunks: (0, 1), (2, 3)" in text
    assert "- `/many`: 10 chunks from (0, 0) to (9, 18)" in text
    assert "- `/scalar`: 1 chunk\n" in text
    assert "- `/a049`" in MANY.to_markdown(limit=None)
    assert "more" not in MANY.to_markdown(limit=50)


def test_a_name_breaks_out_of_no_form() -> None:
    assert HOSTILE.to_markdown() == "**New groups** (2)\n\n- ``` /<script>`x``␊- y ```\n- `/[bold]z`\n"
    assert "<script>" not in HOSTILE._repr_html_()
    assert "&lt;script&gt;" in HOSTILE._repr_html_()
    assert "[bold]z" in _shown(HOSTILE)


def test_html_and_rich_show_what_markdown_does() -> None:
    for text in (MANY._repr_html_(), _shown(MANY)):
        assert "/a019" in text
        assert "/a020" not in text
        assert "… and 30 more" in text
        assert "2 chunks: (0, 1), (2, 3)" in text


def test_html_has_a_table_for_each_kind_of_change() -> None:
    text = MANY._repr_html_()
    assert text.count("<summary") == len(MANY._sections())
    assert "updated chunks (3)" in text
    assert "font-weight:600" in text  # the title that all displays have


def test_no_changes_are_said_to_be_none_in_every_form() -> None:
    for text in (repr(Diff()), Diff().to_markdown().lower(), Diff()._repr_html_(), _shown(Diff())):
        assert "no changes" in text


def test_a_dictionary_holds_everything_and_survives_json() -> None:
    found = json.loads(json.dumps(MANY.to_dict()))
    assert len(found["new_arrays"]) == 50
    assert found["updated_chunks"]["/few"] == [[0, 1], [2, 3]]
    assert found["moved_nodes"] == {"/x": "/y"}
    assert set(found) == set(vars(Diff())) - {"chunk_grids"}  # which is not a change


def test_rich_is_imported_only_by_those_who_print_with_it() -> None:
    program = "import sys, arraystore; arraystore.Diff()._repr_html_(); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
