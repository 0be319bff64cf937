"""Derivation of the changes of a commit: the snapshot that they were made on, and the merged forks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arraystore._format.ids import SnapshotId, id_to_text, is_id_text
from arraystore._runtime.values import dataclass

RESERVED = "__arraystore"
"""Key of the metadata of a commit that holds it; nobody else may set it."""

_BASE, _FORKS = "base", "forks"


@dataclass(frozen=True)
class Derivation:
    """Derivation of the changes of a commit; for people, and nothing depends on it."""

    base: str | None = None
    """Id of the snapshot that the changes were made on; None where that is not recorded."""
    forks: int = 0
    """Number of forks whose changes were merged."""

    @classmethod
    def of(cls, made_on: SnapshotId, base: SnapshotId, forks: int, may_rebase: bool) -> Derivation:
        """Return that of changes made on a snapshot and based on another one: told only where they may differ."""
        return cls(id_to_text(made_on) if may_rebase or made_on != base else None, forks)

    def entries(self) -> dict[str, Any]:
        """Return what is added to the metadata of the commit."""
        parts = ({} if self.base is None else {_BASE: self.base}) | ({_FORKS: self.forks} if self.forks else {})
        return {RESERVED: parts} if parts else {}


def split_metadata(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], Derivation]:
    """Return the metadata that a user has set, and what the commit recorded; unknown or wrong parts count as absent."""
    parts = metadata.get(RESERVED)
    if not isinstance(parts, dict):
        return dict(metadata), Derivation()
    base, forks = parts.get(_BASE), parts.get(_FORKS)
    derivation = Derivation(
        base if isinstance(base, str) and is_id_text(base) else None,
        forks if type(forks) is int and forks > 0 else 0,
    )
    return {key: value for key, value in metadata.items() if key != RESERVED}, derivation
