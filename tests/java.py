"""How tests run Java."""

from __future__ import annotations

__all__ = ["QUICK_JAVA"]

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for processes that live for seconds: to begin costs a third of what it does without."""
