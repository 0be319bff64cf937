"""The decoder as a process, ``python -m arraystore.ui.decoder.worker``: it answers requests until there are no more."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import IO, Any

import numcodecs.blosc
import numpy as np
import numpy.typing as npt
import zarr

from arraystore._commit.edge_chunks import open_in_memory
from arraystore.ui.decoder.messages import receive, send

_ROOM = 768 << 20
"""Bytes of address space for one request: what a page reads at most, a few times."""

_LONGEST_TEXT = 200


def main() -> None:
    """Answer requests one after the other."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a codec prints is no message
    numcodecs.blosc.set_nthreads(1)  # each thread takes address space
    zarr.config.set({"threading.max_workers": 1, "async.concurrency": 1})
    _bound_resources()
    while (request := receive(source)) is not None:
        _answer(sink, *request)


def _bound_resources() -> None:
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows, where only time is bounded
        return
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        used = 1 << 30
    for kind, bound in ((resource.RLIMIT_AS, used + _ROOM), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):  # not every system has each limit
            resource.setrlimit(kind, (bound, bound))


def _answer(sink: IO[bytes], header: dict[str, Any], parts: list[bytes]) -> None:
    try:
        values = _decode(header, parts)
        reply, body = _described(values)
    except Exception as error:  # noqa: BLE001 - codecs are anybody's code, and a lack of memory is an answer
        reply, body = {"error": f"{type(error).__name__}: {error}"[:2_000]}, []
    send(sink, reply, body)


def _decode(header: dict[str, Any], parts: list[bytes]) -> npt.NDArray[Any]:
    count = len(header["documents"])
    documents = dict(zip(header["documents"], parts[:count], strict=True))
    kept: dict[str, Any] = dict(zip(header["keys"], parts[count:], strict=True))
    selection = tuple([slice(*part) if isinstance(part, list) else part for part in header["selection"]])
    return np.asarray(open_in_memory(documents, kept)[selection])


def _described(values: npt.NDArray[Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Return numbers as bytes, and anything else as text."""
    shape = list(values.shape)
    if values.dtype.kind in "biufcmM":
        plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        return {"shape": shape, "dtype": plain.dtype.str}, [plain.tobytes()]
    return {"shape": shape, "texts": [str(item)[:_LONGEST_TEXT] for item in values.reshape(-1)]}, []


if __name__ == "__main__":
    main()
