"""What older releases of zarr ask of a store, back to 3.1.0."""

from __future__ import annotations

import pytest
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

from arraystore import Session


class OlderRequest(RangeByteRequest):
    __hash__ = None  # type: ignore[assignment]


async def test_byte_requests_that_cannot_be_hashed_are_served(session: Session) -> None:
    prototype = default_buffer_prototype()
    await session.store.set("file", prototype.buffer.from_bytes(b"0123456789"))
    part = await session.store.get("file", prototype, OlderRequest(2, 5))
    assert part is not None
    assert part.to_bytes() == b"234"
    whole = session.store.get_sync("file", prototype=prototype, byte_range=OlderRequest(0, 99))
    assert whole is not None
    assert whole.to_bytes() == b"0123456789"


async def test_parts_of_values_are_refused(session: Session) -> None:
    with pytest.raises(NotImplementedError, match="as a whole"):
        await session.store.set_partial_values([("file", 0, b"0")])
