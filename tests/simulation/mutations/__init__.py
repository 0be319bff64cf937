"""Ways to break the protocol, each of which simulation or exploration has to notice.

A checker that notices nothing when the code is wrong proves nothing when it is right.  Each mutation puts wrong code
in the place of right code, one thing at a time; production code has no switches for that.

>>> with MUTATIONS["plain PUT"].applied():
...     report = simulate(7, profile="busy")
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.mutations import answers, besides, conflicts, identity, layers, lifecycle, lines, records, sources
from tests.simulation.mutations.patching import Mutation

__all__ = ["MUTATIONS", "Mutation"]

_MODULES = (records, identity, answers, conflicts, layers, lines, lifecycle, besides, sources)

MUTATIONS: Mapping[str, Mutation] = {each.name: each for module in _MODULES for each in module.MUTATIONS}
"""All of them, by name."""
