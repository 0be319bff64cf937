"""Contenders by name, for processes that are told only a name."""

from __future__ import annotations

from typing import Any

import icechunk

from benchmarks.ours import ArraystoreSystem
from benchmarks.systems import IcechunkSystem, System, ZarrSystem

__all__ = ["OURS", "OURS_DURABLE", "by_name", "split_icechunk"]

OURS = ArraystoreSystem("arraystore, no fsync", fsync=False)
OURS_DURABLE = ArraystoreSystem("arraystore", fsync=True)


def split_icechunk(references: int) -> IcechunkSystem:
    """The peer with manifests of at most so many references along each dimension."""
    splitting = icechunk.ManifestSplittingConfig.from_dict(
        {icechunk.ManifestSplitCondition.AnyArray(): {icechunk.ManifestSplitDimCondition.Any(): references}}
    )
    settings: dict[str, Any] = {"manifest": icechunk.ManifestConfig(splitting=splitting)}
    return IcechunkSystem("icechunk, split manifests", settings=settings)


def by_name(name: str) -> System:
    """The contender of this name."""
    known: dict[str, System] = {
        system.name: system for system in (OURS, OURS_DURABLE, IcechunkSystem(), ZarrSystem(), split_icechunk(10_000))
    }
    return known[name]
