"""The stores that the codec pipeline serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arraystore._session.hierarchy import Hierarchy


class PipelineStore:
    """A store whose chunks the pipeline reads and writes without going through keys."""

    def _pipeline_hierarchy(self, *, writing: bool) -> Hierarchy:
        """Return the hierarchy; raises the error of a refused write."""
        raise NotImplementedError
