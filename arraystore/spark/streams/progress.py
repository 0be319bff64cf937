"""Progress of streams: the last batch that is in a snapshot, so that no batch gets into the history twice.

Each stream has a small file in the hierarchy, below ``.arraystore/streams/``, which is committed together with what its
batches write.  So it is in every snapshot, follows branches, resets and copies, and two writers of one batch conflict
on it. Listings do not show it.  See docs/decisions/019-streams-in-the-hierarchy.md.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import cpu

from arraystore._format.reserved_keys import HIDDEN
from arraystore._session.session import Session
from arraystore.errors import FormatError, InvalidInputError, StreamRestartedError

STREAMS = f"{HIDDEN}/streams/"
"""Prefix of the keys of all streams."""

_VERSION = 1
_LONGEST = 1024
"""Most characters of the id of a stream or of a run."""
_MOST_BYTES = 16 * 1024
"""Largest size of a file that is read."""


@dataclass(frozen=True)
class StreamProgress:
    """Progress of a stream."""

    stream: str
    """Id of the stream."""
    batch: int
    """The last batch that was committed."""
    run: str | None = None
    """Id of the run that numbers the batches (Spark: of the query, in its checkpoint); None if it is unknown."""


def stream_key(stream_id: str) -> str:
    """Return the key of a stream's file."""
    _check_text(stream_id, "stream_id")
    return STREAMS + hashlib.sha256(stream_id.encode()).hexdigest()[:32]


def progress_of(session: Session, stream_id: str) -> StreamProgress | None:
    """Return the progress of a stream in a session, including its own writes; None if there is none.

    It takes one request at most, however many streams, arrays and snapshots there are.
    """
    key = stream_key(stream_id)
    progress = _read(session, key)
    if progress is not None and progress.stream != stream_id:
        raise FormatError(key, f"is of stream {progress.stream[:80]!r}, not of {stream_id[:80]!r}")
    return progress


def last_batch(session: Session, stream_id: str) -> int | None:
    """Return the last batch of a stream in a session; None before the first one."""
    progress = progress_of(session, stream_id)
    return None if progress is None else progress.batch


def is_written(
    session: Session, stream_id: str, batch_id: int, *, run: str | None = None, restarted: bool = False
) -> bool:
    """Return whether a session already holds a batch; raise `StreamRestartedError` if its number is not comparable.

    Only numbers of one run are. Where neither run is known, the last batch is the only one that a stream repeats.
    """
    _check_batch(batch_id)
    last = progress_of(session, stream_id)
    if last is None:
        return False
    if run == last.run and (run is not None or batch_id >= last.batch):
        return batch_id <= last.batch
    if run != last.run and (restarted or (None in (run, last.run) and batch_id > last.batch)):
        return False
    raise StreamRestartedError(
        f"stream {stream_id!r} has written its batches up to {last.batch}, numbered by {_named(last.run)}, and batch "
        f"{batch_id} is numbered by {_named(run)}: its checkpoint was deleted or replaced, or it is written in another "
        "way than before. Nothing was committed. Choose a new stream_id, go back to the old checkpoint, or pass "
        "restarted=True to write the batch on top of the existing data"
    )


def _named(run: str | None) -> str:
    return "an unknown run" if run is None else f"run {run!r}"


def note_batch(
    session: Session, stream_id: str, batch_id: int, *, run: str | None = None, restarted: bool = False
) -> None:
    """Record in a session, to be committed with its changes, that it holds a batch."""
    if run is not None:
        _check_text(run, "run")
    if is_written(session, stream_id, batch_id, run=run, restarted=restarted):
        raise InvalidInputError(
            f"batch {batch_id} of stream {stream_id!r} is written already: the last one is "
            f"{last_batch(session, stream_id)}"
        )
    value: dict[str, Any] = {"v": _VERSION, "stream": stream_id, "batch": batch_id}
    if run is not None:
        value["run"] = run
    session.store.set_sync(stream_key(stream_id), cpu.Buffer.from_bytes(json.dumps(value).encode()))


def _read(session: Session, key: str) -> StreamProgress | None:
    data = session.store.get_sync(key, byte_range=RangeByteRequest(0, _MOST_BYTES + 1))
    return None if data is None else _decode(key, data.to_bytes())


def _decode(key: str, data: bytes) -> StreamProgress:
    if len(data) > _MOST_BYTES:
        raise FormatError(key, f"the progress of a stream of more than {_MOST_BYTES} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise FormatError(key, "the progress of a stream that is not JSON") from None
    if not isinstance(value, dict):
        raise FormatError(key, "the progress of a stream that is not a JSON object")
    stream, batch, run = value.get("stream"), value.get("batch"), value.get("run")
    if value.get("v") != _VERSION:
        raise FormatError(key, f"the progress of a stream in version {str(value.get('v'))[:20]}; this release knows 1")
    if not isinstance(stream, str) or type(batch) is not int or batch < 0 or not isinstance(run, str | None):
        raise FormatError(key, "the progress of a stream without an id or a number of its batch")
    return StreamProgress(stream, batch, run)


def _check_text(text: Any, what: str) -> None:
    if not isinstance(text, str) or not text or len(text) > _LONGEST:
        raise InvalidInputError(f"{what} must be a string of 1 to {_LONGEST} characters, not {str(text)[:80]!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{what} {text[:80]!r} is not valid Unicode") from None


def _check_batch(batch_id: Any) -> None:
    if type(batch_id) is not int or not 0 <= batch_id < 1 << 63:
        raise InvalidInputError(f"the number of a batch must be an integer >= 0, not {batch_id!r}")
