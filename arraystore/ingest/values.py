"""Checks of a plan that need values: of unchanged variables, and of the continuation of the append coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np

from arraystore._session.session import Session
from arraystore.ingest.errors import VariableMismatchError
from arraystore.ingest.model import Box, VariableInfo
from arraystore.ingest.plan import IngestPlan, UnchangedVariable
from arraystore.ingest.regions import LARGEST_REGION_BYTES, cut
from arraystore.ingest.source import to_plain
from arraystore.ingest.target import array_path
from arraystore.ingest.transfer import Sources
from arraystore.spark.regions.boxes import region_text


def check_values(plan: IngestPlan, target: Session | None) -> list[str]:
    """Check that unchanged variables are equal, and return remarks about the seams of the append coordinate."""
    with Sources(plan.sources) as sources:
        for item in plan.unchanged:
            _compare(plan, sources, target, item)
        return _seams(plan, sources, target)


def _why_not_both(append_dim: str | None) -> str:
    if append_dim is None:
        return "cannot have both: where files follow each other along a dimension, name it (--append-dim DIMENSION)"
    return f"without the dimension {append_dim!r} it cannot have both"


def _compare(plan: IngestPlan, sources: Sources, target: Session | None, item: UnchangedVariable) -> None:
    kept = plan.group.arrays[item.name] if item.kept_in is None else plan.sources[item.kept_in].variables[item.name]
    chunks = kept.chunks or tuple(max(1, size) for size in kept.shape)
    for box in cut(tuple((0, size) for size in kept.shape), chunks, kept.itemsize, LARGEST_REGION_BYTES):
        ours = sources.read(item.source, kept, box, item.recode)
        if item.kept_in is None:
            theirs = _target_values(plan, target, kept, box)
        else:
            theirs = sources.read(item.kept_in, kept, box, None)
        if not np.array_equal(ours, theirs, equal_nan=ours.dtype.kind in "fc"):
            owner = f"group {plan.group.path!r}" if item.kept_in is None else f"source {sources.path(item.kept_in)!r}"
            raise VariableMismatchError(
                f"variable {item.name!r} of {sources.path(item.source)!r} has other values than in {owner} (at "
                f"{region_text(box, kept.dims)}), and {_why_not_both(plan.append_dim)}; "
                f"if the values that are kept will do, leave it out (--skip {item.name})"
            )


def _target_values(plan: IngestPlan, target: Session | None, variable: VariableInfo, box: Box) -> np.ndarray[Any, Any]:
    if target is None:
        raise RuntimeError("a plan keeps the values of a group only if there is one")
    found = target.read(array_path(plan.group.path, variable.name), tuple(slice(start, stop) for start, stop in box))
    return to_plain(np.asarray(found), variable.dtype)


def _seams(plan: IngestPlan, sources: Sources, target: Session | None) -> list[str]:
    """Yield a remark for each seam at which the append coordinate does not continue in its direction."""
    array = next((a for a in plan.arrays if a.name == plan.append_dim and a.variable.dims == (plan.append_dim,)), None)
    if array is None or array.variable.dtype.kind not in "iuf":
        return []
    remarks: list[str] = []
    before = ((array.start - 1, array.start),)
    last = _target_values(plan, target, array.variable, before)[0] if array.start else None
    for origin in array.origins:
        if origin.length == 0:
            continue
        values = sources.read(origin.source, array.variable, ((0, origin.length),), origin.recode)
        if last is not None and not values[0] > last:
            remarks.append(
                f"coordinate {array.name!r} does not increase where {plan.sources[origin.source].name!r} begins: "
                f"{values[0]} after {last}"
            )
        last = values[-1]
    return remarks
