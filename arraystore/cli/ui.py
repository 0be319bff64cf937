"""The page to look at a repository: ``ui``."""

from __future__ import annotations

import contextlib
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from arraystore.cli.options import Authorize, Json, Url
from arraystore.cli.resolve import open_storage

_ROOM = 4 << 30
"""Bytes of address space for views, a tenth of which a server uses."""


def ui(
    url: Url,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port on this machine; 0 for any free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write the page into one HTML file instead."),
    ] = None,
    branch: Annotated[
        str, typer.Option("--branch", "-b", metavar="NAME", help="With --export: branch whose newest snapshot to show.")
    ] = "main",
    authorize: Authorize = None,
    as_json: Json = False,
) -> None:
    """Serve a page to look at: history, arrays, chunk maps, values, differences, storage.

    Only this machine can open it, and only by the address that is printed, which has a secret in it. Nothing is
    written to the repository. It ends with Ctrl-C.
    """
    if export is not None:
        _export(url, export, branch, authorize or (), as_json=as_json)
        return
    from arraystore.ui import serve
    from arraystore.ui.address_space import limit_address_space

    def started(address: str) -> None:
        _announce(address, as_json=as_json)
        if browser:
            webbrowser.open(address)
        limit_address_space(_ROOM)  # after the browser, which would inherit the limit

    with contextlib.suppress(KeyboardInterrupt):  # how it is meant to end
        serve(open_storage(url), port=port, authorize=authorize or (), started=started)


def _export(url: str, file: Path, branch: str, authorize: Sequence[str], *, as_json: bool) -> None:
    """Write a report, and say how large it is."""
    from arraystore._runtime.formatting import bytes_text
    from arraystore.cli.console import print_result
    from arraystore.ui import export_report

    size, complete = export_report(open_storage(url), file, branch=branch, authorize=authorize)
    text = f"wrote {file} ({bytes_text(size)})" + ("" if complete else "; what had no room is left out")
    print_result(as_json, text, file=str(file), bytes=size, complete=complete)


def _announce(address: str, *, as_json: bool) -> None:
    """Print the address of the page at once, for a person or a program."""
    if as_json:
        from arraystore.cli.console import print_json

        print_json({"url": address})
        print(end="", flush=True)
    else:
        print(f"{address}\nopen this address on this machine; Ctrl-C ends it", flush=True)
