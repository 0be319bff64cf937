"""Virtual datasets of VirtualiZarr: variables in memory are written, those of references become virtual chunks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
import zarr
from virtualizarr.manifests import ManifestArray

from arraystore._chunks.virtual_checksums import FROM_SOURCE
from arraystore._session.arguments import check_writable_session
from arraystore._session.keys import join
from arraystore._session.session import Session
from arraystore.errors import AlreadyExistsError, InvalidInputError, VirtualReferenceError
from arraystore.virtual.arrays import AnySession, Checksums, VirtualArray, all_nodes_or_none, write_array
from arraystore.virtual.errors import VirtualizeError
from arraystore.virtual.fixed_variables import check_stored
from arraystore.virtual.joining import check_labels, plain_attribute
from arraystore.xarray.dataset_writer import DatasetWriter
from arraystore.xarray.growing import growth_problem
from arraystore.xarray.parts import parts_of

__all__ = ["write_virtual_dataset"]

_INLINED = "__inlined__"
_ENCODING = ("_FillValue", "missing_value", "scale_factor", "add_offset")
_Variables = Mapping[Hashable, xr.Variable]


def write_virtual_dataset(
    vds: xr.Dataset | xr.DataTree,
    session: Session,
    *,
    group: str | None = None,
    append_dim: str | None = None,
    checksum: Checksums = FROM_SOURCE,
    validate_containers: bool = True,
    compare: bool = True,
) -> None:
    """Write a virtual dataset of VirtualiZarr, or a tree of them, into a session; nothing is committed.

    Variables of references (`ManifestArray`) become virtual chunks, from columns, and others are written as they are.
    If this fails, the session is as it was.

    Parameters
    ----------
    vds
        A dataset that `virtualizarr.open_virtual_dataset` returned, or several of them joined.
    session
        A writable session.
    group
        Path of the group; the root by default.
    append_dim
        Dimension along which variables that exist grow, at the end of the branch at the time of the commit.  Variables
        that exist and lack this dimension stay as they are, and must have the same values.
    checksum
        State that the files must have whenever they are read, as for `ArrayStore.set_virtual_ref`; by default their
        present state, which one request for each file looks up.
    validate_containers
        Whether all files must be in a container of the repository.
    compare
        Whether variables of references that stay as they are are read from the files, and compared with what is there;
        False trusts that they are equal.

    Raises
    ------
    AlreadyExistsError
        If a variable exists and `append_dim` is not passed.
    VirtualizeError
        If the dataset lacks an array of the group that has `append_dim`, or has a new one, or if a variable does not
        fit the one to which it is to be appended, or has other values than one that stays.
    VirtualReferenceError
        If a file is in no container, or its state cannot be looked up.
    """
    check_writable_session(session)
    if isinstance(vds, xr.DataTree):
        if append_dim is not None:
            raise InvalidInputError("append_dim does not go with a tree: write each of its datasets with group=")
        datasets = {
            (group or "") if path == "." else join((group or "").strip("/"), path): node.to_dataset(inherit=node is vds)
            for path, node in vds.subtree_with_keys
        }
    elif isinstance(vds, xr.Dataset):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without types
        datasets = {group or "": vds}
    else:
        raise InvalidInputError(f"vds must be an xarray.Dataset or DataTree, not {type(vds).__name__}")
    if append_dim is not None and append_dim not in vds.dims:
        raise VirtualizeError(f"the dataset has no dimension {append_dim!r} to append along: it has {list(vds.dims)}")
    datasets = {path.strip("/"): dataset for path, dataset in datasets.items()}
    nodes = [join(path, str(name)) for path, dataset in datasets.items() for name in dataset.variables]
    with all_nodes_or_none(session, [*datasets, *nodes], append_dim):
        for path, dataset in datasets.items():
            _write_dataset(dataset, session, path, append_dim, checksum, validate_containers, compare)


def _write_dataset(
    vds: xr.Dataset,
    session: Session,
    path: str,
    append_dim: str | None,
    checksum: Checksums,
    validate: bool,
    compare: bool,
) -> None:
    virtual = {name: each for name, each in vds.variables.items() if isinstance(each.data, ManifestArray)}
    appends = append_dim is not None and session.hierarchy.node(path) is not None
    if append_dim is None:
        _check_absent(session, path, vds)
    if append_dim is not None and appends:
        problem = growth_problem(session.hierarchy, path, _along(vds.variables, append_dim), append_dim)
        if problem is not None:
            raise VirtualizeError(problem)
        _check_kept(session, path, vds, append_dim, compare)
    _write_loadable(vds, virtual, session, path, append_dim if appends else None)
    with session.appending(append_dim) if append_dim is not None and appends else nullcontext():
        for name, variable in virtual.items():
            _write_variable(
                session, join(path, str(name)), variable, append_dim if appends else None, checksum, validate
            )
    _write_attributes(session, path, vds)


def _write_loadable(vds: xr.Dataset, virtual: _Variables, session: Session, path: str, append_dim: str | None) -> None:
    loadable = xr.Dataset({name: each for name, each in vds.variables.items() if name not in virtual})
    if append_dim is not None and append_dim not in loadable.dims:
        append_dim, loadable = None, loadable.drop_vars([n for n in loadable.variables if _exists(session, path, n)])
    if loadable.variables:
        elsewhere = _along(virtual, append_dim)
        writer = DatasetWriter(session, path, "a", append_dim, elsewhere=elsewhere)
        writer.write(parts_of(loadable, {}, append_dim, None, write_inherited_coords=False))


def _along(variables: _Variables, dim: str | None) -> set[str]:
    """Return the names of the variables that have a dimension."""
    return {str(name) for name, variable in variables.items() if dim in variable.dims}


def _check_kept(session: Session, path: str, vds: xr.Dataset, append_dim: str, compare: bool) -> None:
    """Check what does not grow against what is there."""
    names = [n for n, v in vds.variables.items() if append_dim not in v.dims and _exists(session, path, n)]
    if not names:
        return
    group, owner = path or None, f"group {'/' + path!r}"
    there = xr.open_dataset(session, engine="arraystore", group=group)  # type: ignore[arg-type]
    for name in names:
        variable = vds.variables[name]
        if not isinstance(variable.data, ManifestArray):
            check_labels(f"variable {name!r}", variable, owner, there.variables[name])
        elif compare:
            stored = zarr.open_array(session.store, path=join(path, str(name)), mode="r")
            try:
                check_stored(str(name), owner, virtual_array(variable), stored, session.context.containers)
            except VirtualReferenceError as error:
                error.add_note(
                    f"Variable {name!r} does not grow along {append_dim!r}, and is compared with that of {owner}: "
                    "authorise both places (access={prefix: None}, --authorize PREFIX), or trust that it is the same "
                    "(compare=False, --no-compare)."
                )
                raise


def _check_absent(session: AnySession, path: str, vds: xr.Dataset) -> None:
    there = [str(name) for name in vds.variables if _exists(session, path, name)]
    if there:
        raise AlreadyExistsError(
            f"group {'/' + path!r} has {', '.join(map(repr, there[:5]))} already: choose another group, delete them "
            "first, or pass append_dim to append"
        )


def _exists(session: AnySession, path: str, name: Hashable) -> bool:
    return session.hierarchy.node(join(path, str(name))) is not None


def _write_variable(
    session: AnySession, path: str, variable: xr.Variable, append_dim: str | None, checksum: Checksums, validate: bool
) -> None:
    if append_dim is not None and append_dim not in variable.dims and session.hierarchy.node(path) is not None:
        return
    write_array(session, path, virtual_array(variable), append_dim, checksum=checksum, validate=validate)


def virtual_array(variable: xr.Variable) -> VirtualArray:
    """Return a variable of references as an array of them."""
    data: Any = variable.data
    manifest = data.manifest
    attributes = dict(variable.attrs) | {key: variable.encoding[key] for key in _ENCODING if key in variable.encoding}
    paths, offsets, lengths = manifest._paths.reshape(-1), manifest._offsets.reshape(-1), manifest._lengths.reshape(-1)
    if manifest._inlined:
        paths = np.where(paths == _INLINED, "", paths)
    if len(paths) and max(offsets.max(), lengths.max()) >> 62:  # chunks that are not stored have any
        stored = paths != ""
        offsets, lengths = np.where(stored, offsets, 0), np.where(stored, lengths, 0)
    return VirtualArray(
        replace(
            data.metadata,
            dimension_names=tuple(map(str, variable.dims)),
            attributes={str(name): plain_attribute(value) for name, value in attributes.items()},
        ),
        tuple(manifest.shape_chunk_grid),
        paths,
        offsets,
        lengths,
        manifest._inlined,
    )


def _write_attributes(session: AnySession, path: str, vds: xr.Dataset) -> None:
    group = zarr.open_group(session.store, path=path, mode="a", zarr_format=3, use_consolidated=False)
    attributes = {str(name): plain_attribute(value) for name, value in vds.attrs.items()}
    names = [*str(group.attrs.get("coordinates", "")).split(), *map(str, vds.coords)]
    if names:  # which variables are coordinates
        attributes["coordinates"] = " ".join(dict.fromkeys(names))
    changed = {name: value for name, value in attributes.items() if group.attrs.get(name) != value}
    if changed:
        group.update_attributes(changed)
