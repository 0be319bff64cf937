"""Wrong ways to read virtual chunks: the state of a source is not compared, or always found to be another one."""

from __future__ import annotations

from arraystore._chunks import virtual_source
from tests.simulation.mutations.patching import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = (
    Mutation(
        "sources are not compared",
        "the checksum of a virtual reference is not compared with the state of its source",
        lambda: [(virtual_source, "is_unchanged", lambda *_: True)],
        ("virtual",),
        runs=(("virtual", 0), ("virtual", 1)),
        breaks="reads",
    ),
    Mutation(
        "sources always have changed",
        "the state of a source counts as another one than that of its reference, whatever it is",
        lambda: [(virtual_source, "is_unchanged", lambda *_: False)],
        ("virtual",),
        runs=(("virtual", 0), ("virtual", 1)),
        breaks="reads",
    ),
)
"""Wrong ways to read virtual chunks."""
