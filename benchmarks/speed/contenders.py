"""The contenders of the speed table, default settings of each but where the name says otherwise."""

from __future__ import annotations

from benchmarks.contenders import OURS
from benchmarks.speed.datasets import Contender, RegionContender, ZarrContender
from benchmarks.speed.floors import CodecAlone, FileAlone, Memcpy
from benchmarks.speed.tensorstores import TensorStoreContender
from benchmarks.systems import IcechunkSystem, ZarrSystem

__all__ = ["DISTANT", "ICECHUNK", "LOCAL", "OCDBT", "OURS_FUSED", "OURS_REGIONS", "OURS_ZARR", "PEERS", "ZARRS"]

_BATCHED = "zarr.core.codec_pipeline.BatchedCodecPipeline"
_FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"
_ZARRS = "zarrs.ZarrsCodecPipeline"

OURS_ZARR = "arraystore"
OURS_REGIONS = "arraystore, session.read/write"
OURS_FUSED = "arraystore, zarr's fused pipeline"
ZARRS = "zarr directory, zarrs"
OCDBT = "TensorStore OCDBT"
ICECHUNK = "Icechunk"

_OURS: tuple[Contender, ...] = (
    ZarrContender(OURS_ZARR, OURS, None),
    RegionContender(OURS_REGIONS, OURS),
    ZarrContender(OURS_FUSED, OURS, _FUSED),
)
_ICECHUNKS: tuple[Contender, ...] = (
    ZarrContender(ICECHUNK, IcechunkSystem(), _BATCHED),
    ZarrContender("Icechunk, fused, 1 worker", IcechunkSystem(), _FUSED, workers=1),
)

LOCAL: tuple[Contender, ...] = (
    *_OURS,
    ZarrContender("zarr directory", ZarrSystem(), _BATCHED),
    ZarrContender("zarr directory, fused", ZarrSystem(), _FUSED),
    ZarrContender(ZARRS, ZarrSystem(), _ZARRS),
    TensorStoreContender("TensorStore files", ocdbt=False),
    TensorStoreContender(OCDBT, ocdbt=True),
    *_ICECHUNKS,
    Memcpy(),
    FileAlone(),
    CodecAlone(),
)
"""Contenders in a local directory; the last ones are floors."""

DISTANT: tuple[Contender, ...] = (
    *_OURS,
    ZarrContender("zarr on S3", ZarrSystem(), _BATCHED),
    ZarrContender("zarr on S3, fused", ZarrSystem(), _FUSED),
    *_ICECHUNKS,
)
"""Contenders on an S3 server."""

PEERS = frozenset(each.name for each in (*LOCAL[3:-3], *DISTANT[3:]))
"""Names of those that are not ours, nor floors."""
