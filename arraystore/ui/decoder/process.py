"""The decoder as its server sees it: one process, begun when it is needed, and ended when it takes too long."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from arraystore.errors import ArrayStoreError
from arraystore.ui.decoder.messages import receive, send
from arraystore.ui.views.limits import MAX_DECODING_SECONDS, TooLargeError

__all__ = ["DECODER", "Decoder", "UndecodableChunksError"]

_INHERITED = ("PATH", "SYSTEMROOT", "LANG", "LC_ALL", "HOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables of the environment that the process gets: no credentials."""

_START_SECONDS = 60.0


class UndecodableChunksError(ArrayStoreError):
    """Chunks cannot be decoded by the codecs of their array."""

    kind = "undecodable"


class Decoder:
    """Process that decodes chunks, one request at a time.

    Parameters
    ----------
    seconds
        Time that one request may take.
    """

    def __init__(self, seconds: float = MAX_DECODING_SECONDS) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def decode(
        self,
        documents: Mapping[str, bytes],
        chunks: Mapping[str, bytes],
        selection: Sequence[slice | int],
        shape: tuple[int, ...],
    ) -> npt.NDArray[Any]:
        """Return a region of an array of which all chunks that it needs are given; items that are no numbers as text.

        Raises
        ------
        UndecodableChunksError
            If they cannot be decoded in the memory that there is for it.
        TooLargeError
            If it takes too long.
        """
        header = {
            "documents": list(documents),
            "keys": list(chunks),
            "selection": [[each.start, each.stop] if isinstance(each, slice) else each for each in selection],
        }
        if not self._lock.acquire(timeout=self.seconds):
            raise TooLargeError(f"others have had chunks decoded for {self.seconds:g} seconds: look again later")
        try:
            found = self._ask(header, [*documents.values(), *chunks.values()])
        finally:
            self._lock.release()
        return _values(found, shape)

    def _ask(self, header: dict[str, Any], parts: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        process = self._running()
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self.seconds, give_up)
        timer.start()
        try:
            answer = _exchange(process, header, parts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.close()
            if late.is_set():
                raise TooLargeError(f"decoding took more than {self.seconds:g} seconds, and was given up") from None
            raise UndecodableChunksError(f"the process that decodes has ended: {error}") from error
        finally:
            timer.cancel()
        if late.is_set():  # it was ended behind its answer
            self.close()
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = _start()
        return self._process

    def close(self) -> None:
        """End the process; the next request begins another one."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)


def _start() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "arraystore.ui.decoder.worker"],  # no module of the working directory
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment(),
    )  # fmt: skip
    timer = threading.Timer(_START_SECONDS, process.kill)
    timer.start()
    try:  # imports count for nobody's request
        _exchange(process, {"documents": [], "keys": [], "selection": []}, [])
    except (OSError, ValueError, KeyError, TypeError) as error:
        _end(process)
        raise UndecodableChunksError(f"the process that decodes cannot be started: {error}") from error
    finally:
        timer.cancel()
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):  # a request that has not reached it is written out first
            pipe.close()


def _environment() -> dict[str, str]:
    """Return the environment of the process: where its modules are, and that it has one thread."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") | {"MALLOC_ARENA_MAX": "2"}
    return kept | one_thread | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _exchange(
    process: subprocess.Popen[bytes], header: dict[str, Any], parts: Sequence[bytes]
) -> tuple[dict[str, Any], list[bytes]]:
    sink, source = process.stdin, process.stdout
    assert sink is not None
    assert source is not None
    send(sink, header, parts)  # it is read to its end before there is an answer
    answer = receive(source, most_parts=1)
    if answer is None:
        raise ValueError("it gave no answer")
    return answer


def _values(answer: tuple[dict[str, Any], list[bytes]], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Check what came back, which hostile chunks may have made; raises `UndecodableChunksError`."""
    header, parts = answer
    if "error" in header:
        raise UndecodableChunksError(f"chunks cannot be decoded: {header['error']}")
    try:
        if "texts" in header:
            texts = np.empty(len(header["texts"]), dtype=object)
            texts[:] = [str(each) for each in header["texts"]]
            return texts.reshape(shape)
        dtype = np.dtype(str(header["dtype"]))
        if dtype.hasobject:
            raise ValueError("a data type of objects")
        return np.frombuffer(parts[0], dtype).reshape(shape)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise UndecodableChunksError(f"the process that decodes gave a wrong answer: {error}") from error


DECODER = Decoder()
"""The decoder of this process, shared by its servers and reports."""

atexit.register(DECODER.close)
