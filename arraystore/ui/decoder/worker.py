"""The decoder as a process, ``python -m arraystore.ui.decoder.worker``: it answers requests until there are no more."""

from __future__ import annotations

import contextlib
import sys
from typing import IO, Any

import numcodecs.blosc
import numpy as np
import numpy.typing as npt
import zarr

from arraystore._commit.edge_chunks import open_in_memory
from arraystore.ui.address_space import limit_address_space
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
    zarr.config.set({"array.rectilinear_chunks": True})  # whoever asks has enabled them
    _bound_resources()
    while (request := receive(source)) is not None:
        _answer(sink, *request)


def _bound_resources() -> None:
    limit_address_space(_ROOM, for_good=True)
    with contextlib.suppress(ModuleNotFoundError, ValueError, OSError):  # not every system has these limits
        import resource

        for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
            resource.setrlimit(kind, (0, 0))


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
