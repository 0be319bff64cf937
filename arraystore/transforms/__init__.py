"""Transforms of arrays chunk by chunk: functions of chunks, rechunking, reductions, coarsening and pyramids.

They run in threads of this process, or on Spark with ``engine="spark"``; see `docs/transforms.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "arraystore.transforms.coarsening": "coarsen",
            "arraystore.transforms.engines": "ThreadsEngine",
            "arraystore.transforms.pyramids": "PyramidReport build_pyramid",
            "arraystore.transforms.reduction": "histogram quantile reduce_array",
            "arraystore.transforms.rechunking.plan": "RechunkPlan Stage",
            "arraystore.transforms.rechunking.run": "RechunkReport plan_rechunk rechunk",
            "arraystore.transforms.report": "TransformError TransformReport",
            "arraystore.transforms.transform": "transform_chunks",
        },
    )
else:
    from arraystore.transforms.coarsening import coarsen
    from arraystore.transforms.engines import ThreadsEngine
    from arraystore.transforms.pyramids import PyramidReport, build_pyramid
    from arraystore.transforms.rechunking.plan import RechunkPlan, Stage
    from arraystore.transforms.rechunking.run import RechunkReport, plan_rechunk, rechunk
    from arraystore.transforms.reduction import histogram, quantile, reduce_array
    from arraystore.transforms.report import TransformError, TransformReport
    from arraystore.transforms.transform import transform_chunks

__all__ = [
    "PyramidReport",
    "RechunkPlan",
    "RechunkReport",
    "Stage",
    "ThreadsEngine",
    "TransformError",
    "TransformReport",
    "build_pyramid",
    "coarsen",
    "histogram",
    "plan_rechunk",
    "quantile",
    "rechunk",
    "reduce_array",
    "transform_chunks",
]
