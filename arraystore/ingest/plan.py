"""Planning of ingests: which arrays grow or are created, and which task writes which region.

Planning is pure: it reads no values, and the same input gives the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from arraystore.errors import InvalidInputError
from arraystore.ingest.checks import check_alignment, check_fits, check_same_names, clock_recodes
from arraystore.ingest.chunks import choose_chunks
from arraystore.ingest.errors import TargetExistsError, VariableMismatchError
from arraystore.ingest.model import ArrayPlan, GroupInfo, Origin, Recode, Region, SourceInfo, VariableInfo
from arraystore.ingest.regions import assign_to_tasks, region_bytes, regions_of

DRIVER_LINE_BYTES = 2**20
"""Variables of at most one dimension are written by the driver up to this size: coordinates, scalars."""
DRIVER_BYTES = 16 * 2**10
"""Variables below this size are written by the driver, too, such as the bounds of a coordinate."""


@dataclass(frozen=True, slots=True)
class UnchangedVariable:
    """A variable without the append dimension, whose values in `source` must equal those that are kept."""

    name: str
    source: int
    kept_in: int | None
    """The source whose values are kept; None: the group's array."""
    recode: Recode | None = None


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """Plan of an ingest."""

    group: GroupInfo
    sources: tuple[SourceInfo, ...]
    append_dim: str | None
    arrays: tuple[ArrayPlan, ...]
    unchanged: tuple[UnchangedVariable, ...]
    tasks: tuple[tuple[Region, ...], ...]
    group_attrs: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that will be written, before compression."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def region_count(self) -> int:
        """Regions that executors write."""
        return sum(len(task) for task in self.tasks)

    @property
    def appends(self) -> bool:
        """Tell whether arrays that exist already will grow."""
        return any(not array.is_new for array in self.arrays)

    def array(self, name: str) -> ArrayPlan:
        """Return the plan of one array."""
        return next(array for array in self.arrays if array.name == name)


def plan_ingest(
    sources: Sequence[SourceInfo],
    group: GroupInfo,
    *,
    append_dim: str | None = None,
    chunks: Mapping[str, int] | None = None,
    tasks: int = 6,
    skip: Sequence[str] = (),
) -> IngestPlan:
    """Plan the ingest of sources into a group.

    Parameters
    ----------
    sources
        In the order in which they follow each other along `append_dim`.
    group
        The target group before the ingest.
    append_dim
        Dimension along which sources are joined, and existing arrays grow.  Without it all arrays are new.
    chunks
        Chunk sizes of new arrays by dimension.
    tasks
        Largest number of tasks.
    skip
        Variables to leave out.

    Raises
    ------
    VariableMismatchError
        If a variable does not fit its target array, or the other sources.
    AlignmentError
        If an append would start inside a chunk.
    TargetExistsError
        If arrays of these names exist already.
    """
    if not sources:
        raise InvalidInputError("there is no source to ingest; name at least one")
    if tasks < 1:
        raise InvalidInputError(f"tasks={tasks}: an ingest needs at least one task")
    sources = _without(sources, skip)
    wanted = dict(chunks or {})
    _check_chunk_names(sources, wanted)
    if append_dim is None:
        arrays, unchanged = _plan_new(sources, group, wanted)
    else:
        arrays, unchanged = _plan_along(sources, group, append_dim, wanted)
    return IngestPlan(
        group=group,
        sources=tuple(sources),
        append_dim=append_dim,
        arrays=tuple(arrays),
        unchanged=tuple(unchanged),
        tasks=tuple(_share_out(arrays, tasks)),
        group_attrs={} if group.arrays else dict(sources[0].attrs),
        notes=tuple(_notes(arrays, append_dim, group, wanted)),
    )


def _without(sources: Sequence[SourceInfo], skip: Sequence[str]) -> list[SourceInfo]:
    names = {name for source in sources for name in source.variables}
    if unknown := sorted(set(skip) - names):
        raise InvalidInputError(
            f"no source has a variable {unknown[0]!r} to leave out; there are: {', '.join(sorted(names))}"
        )
    if not names - set(skip):
        raise InvalidInputError("every variable of the sources is left out, so there is nothing to ingest")
    return [
        replace(source, variables={name: v for name, v in source.variables.items() if name not in skip})
        for source in sources
    ]


def _check_chunk_names(sources: Sequence[SourceInfo], wanted: Mapping[str, int]) -> None:
    dims = {dim for source in sources for variable in source.variables.values() for dim in variable.dims}
    if unknown := sorted(set(wanted) - dims):
        raise InvalidInputError(
            f"chunks name the dimension {unknown[0]!r}, which no source has; there are: {', '.join(sorted(dims))}"
        )


def _plan_new(
    sources: Sequence[SourceInfo], group: GroupInfo, wanted: Mapping[str, int]
) -> tuple[list[ArrayPlan], list[UnchangedVariable]]:
    """Plan a new array for every variable of every source."""
    first: dict[str, int] = {}
    unchanged: list[UnchangedVariable] = []
    for index, source in enumerate(sources):
        for name, variable in source.variables.items():
            kept = first.setdefault(name, index)
            if kept != index:
                held = sources[kept]
                check_fits(source, variable, held.variables[name], f"source {held.path!r}", None)
                recode = clock_recodes(source, {name: held.variables[name]}).get(name)
                unchanged.append(UnchangedVariable(name, index, kept, recode))
    _refuse_existing(first, group, "; or, to append to them, name the dimension (--append-dim)")
    _check_sizes(sources, group)
    arrays: list[ArrayPlan] = []
    for name, index in first.items():
        variable = sources[index].variables[name]
        chunked = replace(variable, chunks=choose_chunks(variable, wanted, None, ()))
        arrays.append(_array_plan(chunked, 0, None, True, [Origin(index, 0, 0)]))
    return arrays, unchanged


def _plan_along(
    sources: Sequence[SourceInfo], group: GroupInfo, dim: str, wanted: Mapping[str, int]
) -> tuple[list[ArrayPlan], list[UnchangedVariable]]:
    """Plan arrays that grow along the dimension, or new ones that the sources are joined to.

    The arrays of the group set the pattern, or for new ones the first source; what lacks the dimension must be equal.
    """
    lengths = [_length(source, dim) for source in sources]
    if any(dim in array.dims for array in group.arrays.values()):
        start = _common_end(group, dim)
        recodes = _check_sources(sources, group.arrays, f"group {group.path!r}", dim)
        return _grow(_Line(sources, dim, start, lengths, recodes), group), _unchanged(sources, dim, recodes, None)
    first = sources[0]
    _refuse_existing(first.variables, group, f"; none of its arrays has the dimension {dim!r} to append along")
    _check_sizes([first], group)
    recodes = _check_sources(sources, first.variables, f"source {first.path!r}", dim)
    return _join(_Line(sources, dim, 0, lengths, recodes), wanted), _unchanged(sources, dim, recodes, 0)


@dataclass(frozen=True)
class _Line:
    """Sources that follow each other along a dimension."""

    sources: Sequence[SourceInfo]
    dim: str
    start: int
    """Where the first one begins."""
    lengths: Sequence[int]
    recodes: Sequence[Mapping[str, Recode]]
    """By name, the variables of each source whose times get another encoding."""

    def lengthen(self, variable: VariableInfo) -> VariableInfo:
        """Return a variable as long as the end of the last source."""
        end = self.start + sum(self.lengths)
        shape = tuple(end if d == self.dim else n for d, n in zip(variable.dims, variable.shape, strict=True))
        return replace(variable, shape=shape)

    def origins(self, name: str) -> list[Origin]:
        """Return the places of the sources in one array."""
        starts = accumulate(self.lengths[:-1], initial=self.start)
        parts = enumerate(zip(starts, self.lengths, self.recodes, strict=True))
        return [Origin(index, at, length, recodes.get(name)) for index, (at, length, recodes) in parts]


def _grow(line: _Line, group: GroupInfo) -> list[ArrayPlan]:
    """Plan how the arrays of the group grow."""
    arrays: list[ArrayPlan] = []
    for name in line.sources[0].variables:  # in the source's order; a group has none
        array, axis = group.arrays[name], group.arrays[name].axis(line.dim)
        if axis is None:
            continue
        plan = _array_plan(line.lengthen(array), line.start, axis, False, line.origins(name))
        if not plan.on_driver:
            check_alignment(array, axis, line.dim)
        arrays.append(plan)
    return arrays


def _join(line: _Line, wanted: Mapping[str, int]) -> list[ArrayPlan]:
    """Plan new arrays that the sources are joined to."""
    arrays: list[ArrayPlan] = []
    for name, variable in line.sources[0].variables.items():
        joined = line.lengthen(variable)
        chunked = replace(joined, chunks=choose_chunks(joined, wanted, line.dim, line.lengths))
        arrays.append(_array_plan(chunked, line.start, variable.axis(line.dim), True, line.origins(name)))
    return arrays


def _unchanged(
    sources: Sequence[SourceInfo], dim: str, recodes: Sequence[Mapping[str, Recode]], kept_in: int | None
) -> list[UnchangedVariable]:
    """Return the variables without the dimension, but for those whose values are kept."""
    return [
        UnchangedVariable(name, index, kept_in, recodes[index].get(name))
        for index, source in enumerate(sources)
        for name, variable in source.variables.items()
        if dim not in variable.dims and index != kept_in
    ]


def _length(source: SourceInfo, dim: str) -> int:
    sizes = {v.shape[v.dims.index(dim)] for v in source.variables.values() if dim in v.dims}
    if not sizes:
        dims = sorted({d for v in source.variables.values() for d in v.dims})
        raise VariableMismatchError(
            f"source {source.path!r} has nothing along {dim!r} to append; its dimensions are: "
            f"{', '.join(dims) or 'none'}"
        )
    return sizes.pop()


def _common_end(group: GroupInfo, dim: str) -> int:
    sizes = {name: a.shape[a.dims.index(dim)] for name, a in group.arrays.items() if dim in a.dims}
    if len(set(sizes.values())) > 1:
        raise VariableMismatchError(
            f"the arrays of group {group.path!r} are of different lengths along {dim!r} ({sizes}), so there is no one "
            "place to append at; resize them to one length first"
        )
    return next(iter(sizes.values()))


def _check_sources(
    sources: Sequence[SourceInfo], pattern: Mapping[str, VariableInfo], owner: str, dim: str
) -> list[dict[str, Recode]]:
    """Check that the sources fit the pattern, and return which of their times get its encoding."""
    return [_check_source(source, pattern, owner, dim) for source in sources]


def _check_source(source: SourceInfo, pattern: Mapping[str, VariableInfo], owner: str, dim: str) -> dict[str, Recode]:
    check_same_names(source, pattern, owner, dim)
    for name, variable in source.variables.items():
        check_fits(source, variable, pattern[name], owner, dim)
    return clock_recodes(source, pattern)


def _refuse_existing(names: Mapping[str, Any], group: GroupInfo, remedy: str) -> None:
    if taken := sorted(set(names) & set(group.arrays)):
        raise TargetExistsError(
            f"group {group.path!r} already has {', '.join(map(repr, taken))}; ingest into another group "
            f"(--group){remedy}"
        )
    if group.zarr_format != 3:
        raise InvalidInputError(
            f"group {group.path!r} is of Zarr v{group.zarr_format}, and new arrays are of v3; ingest into "
            "another group (--group)"
        )


def _check_sizes(sources: Sequence[SourceInfo], group: GroupInfo) -> None:
    """Check that each dimension has one size in the group, as readers of datasets need."""
    sizes: dict[str, tuple[int, str]] = {}
    held = [(array, f"group {group.path!r}") for array in group.arrays.values()]
    held += [(v, f"source {source.path!r}") for source in sources for v in source.variables.values()]
    for variable, owner in held:
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            expected, where = sizes.setdefault(dim, (size, owner))
            if expected != size:
                raise VariableMismatchError(
                    f"dimension {dim!r} has {size} elements in {owner} (variable {variable.name!r}), but "
                    f"{expected} in {where}; "
                    "ingest them into different groups, or name the dimension to join them along (--append-dim)"
                )


def _array_plan(variable: VariableInfo, start: int, axis: int | None, is_new: bool, origins: list[Origin]) -> ArrayPlan:
    plan = ArrayPlan(variable, start, axis, is_new, False, tuple(origins))
    limit = DRIVER_LINE_BYTES if len(variable.dims) <= 1 else DRIVER_BYTES
    return replace(plan, on_driver=plan.nbytes <= limit)


def _share_out(arrays: Sequence[ArrayPlan], tasks: int) -> list[tuple[Region, ...]]:
    shared = [array for array in arrays if not array.on_driver]
    limit = region_bytes(sum(array.nbytes for array in shared), tasks)
    regions = [region for array in shared for region in regions_of(array, limit)]
    return assign_to_tasks(regions, tasks) if regions else []


def _notes(
    arrays: Sequence[ArrayPlan], append_dim: str | None, group: GroupInfo, wanted: Mapping[str, int]
) -> list[str]:
    notes: list[str] = []
    if wanted and not any(array.is_new for array in arrays):
        notes.append(f"the arrays of group {group.path!r} keep their chunks; those given are for new arrays only")
    for array in arrays:
        axis = array.axis
        if axis is not None and not array.on_driver and array.variable.shape[axis] % array.chunks[axis]:
            notes.append(
                f"array {array.name!r} will end inside a chunk ({append_dim}={array.variable.shape[axis]}, chunks of "
                f"{array.chunks[axis]}): nothing can be appended to it afterwards"
            )
    return notes
