"""Settings about manifests: accepted and kept, without effect, since arraystore splits and loads them by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from arraystore.compat.icechunk._display import Record

__all__ = [
    "ManifestConfig",
    "ManifestPreloadCondition",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
]


@dataclass(frozen=True)
class _Condition:
    """A condition on arrays: its kind and what that needs."""

    kind: str
    values: tuple[Any, ...] = ()

    @classmethod
    def or_conditions(cls, conditions: list[Self]) -> Self:
        """Return the condition that any of these holds."""
        return cls("or_conditions", tuple(conditions))

    @classmethod
    def and_conditions(cls, conditions: list[Self]) -> Self:
        """Return the condition that all of these hold."""
        return cls("and_conditions", tuple(conditions))

    @classmethod
    def path_matches(cls, regex: str) -> Self:
        """Return the condition that a path matches."""
        return cls("path_matches", (regex,))

    @classmethod
    def name_matches(cls, regex: str) -> Self:
        """Return the condition that a name matches."""
        return cls("name_matches", (regex,))

    def __or__(self, other: Self, /) -> Self:
        return type(self)("or_conditions", (self, other))

    def __and__(self, other: Self, /) -> Self:
        return type(self)("and_conditions", (self, other))

    def __repr__(self) -> str:
        values = ", ".join(map(repr, self.values))
        if self.kind in ("or_conditions", "and_conditions"):
            values = f"[{values}]"
        return f"icechunk.config.{type(self).__name__}.{self.kind}({values})"


class ManifestPreloadCondition(_Condition):
    """Choice of the manifests to load early."""

    @staticmethod
    def num_refs(from_refs: int | None, to_refs: int | None) -> ManifestPreloadCondition:
        """Return the condition that an array has so many chunks."""
        return ManifestPreloadCondition("num_refs", (from_refs, to_refs))

    @staticmethod
    def true() -> ManifestPreloadCondition:
        """Return the condition that always holds."""
        return ManifestPreloadCondition("true")

    @staticmethod
    def false() -> ManifestPreloadCondition:
        """Return the condition that never holds."""
        return ManifestPreloadCondition("false")


class ManifestSplitCondition(_Condition):
    """Choice of the manifests to split."""

    @staticmethod
    def AnyArray() -> ManifestSplitCondition:  # noqa: N802 - Icechunk's name
        """Return the condition that always holds."""
        return ManifestSplitCondition("AnyArray")


class ManifestSplitDimCondition:
    """Choice of the dimension to split along."""

    @dataclass(frozen=True)
    class Axis:
        """A dimension by its number."""

        axis: int

    @dataclass(frozen=True)
    class DimensionName:
        """A dimension by its name."""

        regex: str

    @dataclass(frozen=True)
    class Any:
        """Any dimension."""


@dataclass(repr=False, unsafe_hash=True)
class ManifestPreloadConfig(Record):
    """Choice of the manifests to load early, and of their count."""

    _title: ClassVar[str] = "icechunk.config.ManifestPreloadConfig"
    _defaults: ClassVar[Mapping[str, Any]] = {"max_total_refs": 10_000, "max_arrays_to_scan": 50}

    max_total_refs: int | None = None
    preload_if: ManifestPreloadCondition | None = None
    max_arrays_to_scan: int | None = None


@dataclass(repr=False, unsafe_hash=True)
class ManifestSplittingConfig(Record):
    """Splitting of manifests."""

    _title: ClassVar[str] = "icechunk.config.ManifestSplittingConfig"

    split_sizes: tuple[tuple[ManifestSplitCondition, tuple[tuple[Any, int], ...]], ...] = field(default=())

    def __post_init__(self) -> None:
        self.split_sizes = tuple(self.split_sizes or ())

    @staticmethod
    def from_dict(split_sizes: dict[ManifestSplitCondition, dict[Any, int]]) -> ManifestSplittingConfig:
        """Return the configuration of a mapping of conditions to sizes by dimension."""
        return ManifestSplittingConfig(tuple((which, tuple(sizes.items())) for which, sizes in split_sizes.items()))

    def to_dict(self) -> dict[ManifestSplitCondition, dict[Any, int]]:
        """Return a mapping of conditions to sizes by dimension."""
        return {which: dict(sizes) for which, sizes in self.split_sizes}


@dataclass(repr=False, unsafe_hash=True)
class ManifestVirtualChunkLocationCompressionConfig(Record):
    """Compression of URLs of virtual chunks."""

    _title: ClassVar[str] = "icechunk.config.ManifestVirtualChunkLocationCompressionConfig"

    min_num_chunks: int | None = None
    dictionary_max_training_samples: int | None = field(default=None, kw_only=True)
    dictionary_max_size_bytes: int | None = field(default=None, kw_only=True)
    compression_level: int | None = field(default=None, kw_only=True)


@dataclass(repr=False, unsafe_hash=True)
class ManifestConfig(Record):
    """Settings about manifests."""

    _title: ClassVar[str] = "icechunk.config.ManifestConfig"
    _defaults: ClassVar[Mapping[str, Any]] = {
        "preload": ManifestPreloadConfig(),
        "splitting": ManifestSplittingConfig(),
        "max_concurrent_manifest_fetches_during_commit": 1,
    }

    preload: ManifestPreloadConfig | None = None
    splitting: ManifestSplittingConfig | None = None
    virtual_chunk_location_compression: ManifestVirtualChunkLocationCompressionConfig | None = None
    max_concurrent_manifest_fetches_during_commit: int | None = None
