"""Plain values as bytes, which travel from tasks to the driver; what arrives is never unpickled."""

from arraystore._runtime.plain_values import pack, unpack

__all__ = ["pack", "unpack"]
