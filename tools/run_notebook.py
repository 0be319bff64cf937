"""Run the cells of a notebook in this process, in order, as a kernel would, and show or save what they display.

    python tools/run_notebook.py NOTEBOOK [--save]

Neither Jupyter nor IPython is needed: a cell displays the value of its last expression, by the same `_repr_…_` methods,
and the figures of matplotlib that it leaves open.  The exit status is 1, with a traceback, when a cell raises.
"""

from __future__ import annotations

import argparse
import ast
import base64
import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

FORMATS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}

Output = dict[str, Any]


def run_cells(notebook: Mapping[str, Any], name: str, dots_per_inch: int = 72) -> Iterator[list[Output]]:
    """Run each cell with code, and yield what it displays, as notebooks store it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), 1):
        printed, warned = io.StringIO(), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(warned):
            value = _run(source_of(cell), f"{name}[{number}]", namespace)
        streams = [*_stream("stdout", printed), *_stream("stderr", warned)]
        yield [*streams, *_displayed(value, number), *_figures(dots_per_inch)]


def code_cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the cells with code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source_of(cell: Mapping[str, Any]) -> str:
    """Return the text of a cell."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _run(source: str, name: str, namespace: dict[str, Any]) -> Any:
    """Run statements, and return the value of the last one if that is an expression without a semicolon."""
    body = ast.parse(source, name).body
    last = body[-1] if body and isinstance(body[-1], ast.Expr) else None
    statements = ast.Module([each for each in body if each is not last], [])
    exec(compile(statements, name, "exec"), namespace)
    value = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    return None if source.rstrip().endswith(";") else value


def _stream(name: str, text: io.StringIO) -> list[Output]:
    return [{"output_type": "stream", "name": name, "text": _lines(text.getvalue())}] if text.getvalue() else []


def _displayed(value: Any, number: int) -> list[Output]:
    if value is None:
        return []
    data = {"text/plain": _lines(repr(value))}
    for kind, method in FORMATS.items():
        if hasattr(value, method):
            data[kind] = _lines(getattr(value, method)())
    return [{"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}]


def _figures(dots_per_inch: int) -> list[Output]:
    """Return the open figures as pictures, and close them."""
    outputs = [_picture(plt.figure(number), dots_per_inch) for number in plt.get_fignums()]
    plt.close("all")
    return outputs


def _picture(figure: Figure, dots_per_inch: int) -> Output:
    data = {"image/png": base64.b64encode(png_of(figure, dots_per_inch)).decode(), "text/plain": [repr(figure)]}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def png_of(figure: Figure, dots_per_inch: int) -> bytes:
    """Return a figure as a small PNG, with a palette."""
    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=dots_per_inch)
    Image.open(full).convert("RGB").quantize(64).save(small, format="PNG", optimize=True)
    return small.getvalue()


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run a notebook."""
    parser = argparse.ArgumentParser(description="Run the cells of a notebook in this process.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--save", action="store_true", help="write what is displayed into the notebook")
    options = parser.parse_args()
    notebook = json.loads(options.notebook.read_text(encoding="utf-8"))
    for number, (cell, outputs) in enumerate(
        zip(code_cells(notebook), run_cells(notebook, options.notebook.name), strict=True), 1
    ):
        cell |= {"outputs": outputs, "execution_count": number}
    if options.save:
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        options.notebook.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
