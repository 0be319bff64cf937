"""Groups of a session as datasets of xarray: metadata decoded once, arrays read by regions when they are used.

How Zarr metadata become variables is xarray's own code, `ZarrStore`; what is replaced is how it gets at metadata and at
values.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import xarray as xr
import zarr
from xarray.backends import ZarrStore
from xarray.backends.common import datatree_from_dict_with_io_cleanup
from xarray.backends.store import StoreBackendEntrypoint
from xarray.core import indexing
from zarr.core.group import AsyncGroup, GroupMetadata
from zarr.storage import StorePath

from arraystore._changes.read_tracking import note_document
from arraystore._format.node import Node, NodeKind
from arraystore._repository.repository import Repository
from arraystore._session.base import SessionBase
from arraystore._session.keys import join
from arraystore._session.listing import members
from arraystore._session.regions.access import open_array
from arraystore._session.regions.layout import layout_of
from arraystore._session.regions.zarr_regions import zarr_array
from arraystore._session.store import ArrayStore
from arraystore.errors import InvalidInputError
from arraystore.storage import Storage
from arraystore.xarray.coordinates import Coordinates
from arraystore.xarray.lazy_array import LazyArray
from arraystore.xarray.opening import open_session
from arraystore.xarray.urls import repository_url

_GROUP_DOCUMENTS = ("zarr.json", ".zgroup", ".zattrs")
_DOCUMENTS: Mapping[int, tuple[str, ...]] = {3: ("zarr.json",), 2: (".zarray", ".zgroup")}
"""Documents that make a node a member of a group of each format."""


def can_open(place: object) -> bool:
    """Tell whether an object is a session, or leads to one."""
    return isinstance(place, SessionBase | ArrayStore | Repository | Storage)


@dataclass(frozen=True)
class Place:
    """A session, and how its arrays are decoded."""

    session: SessionBase
    url: str | None
    """The URL that it was opened from, if xarray would take it for a path."""
    decoding: Mapping[str, Any]
    """Arguments of xarray's decoding."""

    @classmethod
    def of(
        cls,
        place: Any,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        ref: str | None = None,
        as_of: datetime | None = None,
        storage_options: Mapping[str, Any] | None = None,
        authorize_virtual_chunk_access: Mapping[str, Any] | None = None,
        **decoding: Any,
    ) -> Self:
        """Return the place that a user named; parameters are those of the engine."""
        session = open_session(
            place,
            branch=branch,
            tag=tag,
            snapshot_id=snapshot_id,
            ref=ref,
            as_of=as_of,
            storage_options=storage_options,
            access=authorize_virtual_chunk_access,
        )
        return cls(session, repository_url(place), decoding)

    def dataset(self, group: str | None) -> xr.Dataset:
        """Return a group as a dataset; raises `FileNotFoundError` if there is none."""
        path = (group or "").strip("/")
        group_node = _group_node(self.session, path)
        # xarray takes fill values for a mask in groups of Zarr v2 only, whatever its caller says
        store = _GroupStore(
            _open_group(self.session, group_node), mode="r", use_zarr_fill_value_as_mask=_format(group_node) == 2
        )
        dataset: xr.Dataset = StoreBackendEntrypoint().open_dataset(store, **self.decoding)
        if self.url is not None:
            dataset.encoding["source"] = self.url
        return dataset

    def groups(self, group: str | None) -> dict[str, xr.Dataset]:
        """Return a group and all groups below it, by their paths relative to it."""
        top = (group or "").strip("/")
        skip = len(join(top, ""))
        return {f"/{path[skip:]}": self.dataset(path) for path in (top, *self._below(top))}

    def tree(self, group: str | None) -> xr.DataTree:
        """Return a group and all groups below it as a tree."""
        tree: xr.DataTree = datatree_from_dict_with_io_cleanup(self.groups(group))
        if self.url is not None:
            tree.encoding["source"] = self.url
        return tree

    def _below(self, path: str) -> Iterator[str]:
        node = _group_node(self.session, path)
        for member in _members(self.session, node):
            if member.kind == NodeKind.GROUP:
                yield member.path
                yield from self._below(member.path)


# -- metadata ---------------------------------------------------------------------------------------------------


def _group_node(session: SessionBase, path: str) -> Node:
    """Return the node of a group, adding its metadata to the read set; raises `FileNotFoundError` if there is none."""
    hierarchy = session.hierarchy
    node = hierarchy.node(path)
    if (noted := hierarchy.noted) is not None:
        for name in _GROUP_DOCUMENTS:
            note_document(noted, hierarchy.beneath, hierarchy.changes, join(path, name), name, node)
    if node is None:
        raise FileNotFoundError(f"there is no group {'/' + path!r} in {session.describe()}")
    if node.kind != NodeKind.GROUP:
        raise InvalidInputError(f"{'/' + path!r} in {session.describe()} is an array: open the group that it is in")
    return node


def _format(node: Node) -> int:
    return 3 if "zarr.json" in node.documents else 2  # as zarr chooses


def _members(session: SessionBase, group: Node) -> list[Node]:
    """Return the groups and arrays in a group that are of its format."""
    wanted = _DOCUMENTS[_format(group)]
    return [n for n in members(session.hierarchy, group.path) if any(name in n.documents for name in wanted)]


def _open_group(session: SessionBase, node: Node) -> zarr.Group:
    return zarr.Group(AsyncGroup(_group_metadata(node.documents), StorePath(session.store, node.path)))


def _group_metadata(documents: Mapping[str, bytes]) -> GroupMetadata:
    if "zarr.json" in documents:
        return GroupMetadata.from_dict(json.loads(documents["zarr.json"]))
    attributes = json.loads(documents.get(".zattrs", b"{}"))
    return GroupMetadata.from_dict({**json.loads(documents[".zgroup"]), "attributes": attributes})


def _open_array(session: SessionBase, path: str) -> zarr.Array[Any]:
    """Return an array of zarr without opening it: its metadata are decoded once for each document."""
    handle = open_array(session, path)
    array = zarr_array(session.store, path, layout_of(handle))
    if "zarr.json" in handle.node.documents or ".zattrs" not in handle.node.documents:
        return array
    metadata: Any = array.metadata
    metadata = metadata.update_attributes(json.loads(handle.node.documents[".zattrs"]))
    return zarr.Array(zarr.AsyncArray(metadata, array.store_path))


# -- variables --------------------------------------------------------------------------------------------------


class _GroupStore(ZarrStore):
    """A group of a session, for xarray."""

    __slots__ = ("_coordinates",)

    def _fetch_members(self) -> dict[str, Any]:
        """Return the arrays of the group."""
        session = self._session
        arrays = [
            member
            for member in _members(session, session.hierarchy.node(self.zarr_group.path))
            if member.kind == NodeKind.ARRAY
        ]
        self._coordinates = Coordinates.among(session, arrays)
        return {member.path.rpartition("/")[2]: _open_array(session, member.path) for member in arrays}

    @property
    def _session(self) -> Any:
        return self.zarr_group.store.session

    def open_store_variable(self, name: str) -> xr.Variable:
        """Return a variable whose values are read by regions."""
        variable: xr.Variable = super().open_store_variable(name)  # type: ignore[no-untyped-call,unused-ignore]
        path = self.members[name].path
        lazy = LazyArray(self._session, path, variable.shape, variable.dtype, self._coordinates)
        # lists and dicts among attributes belong to the decoded metadata, which are shared
        attributes = {key: copy.deepcopy(value) for key, value in variable.attrs.items()}
        return xr.Variable(variable.dims, indexing.LazilyIndexedArray(lazy), attributes, variable.encoding, True)
