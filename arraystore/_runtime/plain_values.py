"""Plain values as bytes, which travel from workers to the driver; what arrives is never unpickled."""

from __future__ import annotations

from typing import Any

from arraystore.errors import FormatError

__all__ = ["pack", "unpack"]


def pack(value: Any) -> bytes:
    """Return plain values as bytes; numpy scalars become Python numbers."""
    import msgpack

    packed = msgpack.packb(value, use_bin_type=True, default=_plain)
    assert isinstance(packed, bytes)
    return packed


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    raise TypeError(f"a report holds plain values, not {type(value).__name__}")


def unpack(name: str, data: Any, *, lists: bool = False) -> Any:
    """Return the values in bytes, sequences as tuples or lists; raise `FormatError` with the name of the bytes."""
    import msgpack

    try:  # counts by number are plain values, too: keys need not be text
        return msgpack.unpackb(data, use_list=lists, raw=False, max_ext_len=0, strict_map_key=False)
    except Exception as error:
        raise FormatError(name, f"cannot be read ({type(error).__name__})") from error
