"""The engine ``"arraystore"`` of xarray.

xarray imports this module whenever it guesses an engine: what opens repositories is imported when one is opened.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from xarray.backends import BackendEntrypoint

from arraystore._runtime import lazy_module
from arraystore.xarray.urls import is_repository_url

if TYPE_CHECKING:
    import xarray as xr

    from arraystore.xarray import reading
else:
    reading = lazy_module("arraystore.xarray.reading")

__all__ = ["ArrayStoreBackendEntrypoint"]


class ArrayStoreBackendEntrypoint(BackendEntrypoint):
    """Engine ``"arraystore"`` of `xarray.open_dataset`, `xarray.open_datatree` and `xarray.open_groups`.

    It opens a URL (``"arraystore+s3://bucket/prefix"``, or any that `storage_from_url` takes), a path, a `Storage`, a
    `Repository`, or a session or its store.
    """

    description: ClassVar[str] = "Open repositories of arraystore"
    supports_groups: ClassVar[bool] = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Tell whether something is a URL that begins with ``arraystore+``, or an object of this library."""
        if is_repository_url(filename_or_obj):
            return True
        of_library = type(filename_or_obj).__module__.partition(".")[0] == "arraystore"
        return of_library and reading.can_open(filename_or_obj)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        ref: str | None = None,
        as_of: datetime | None = None,
        storage_options: Mapping[str, Any] | None = None,
        authorize_virtual_chunk_access: Mapping[str, Any] | None = None,
    ) -> xr.Dataset:
        """Open a group as a dataset, whose arrays are read when they are used.

        Parameters
        ----------
        filename_or_obj
            URL, path, storage, repository, session, or store of a session.
        mask_and_scale, decode_times, concat_characters, decode_coords, drop_variables, use_cftime, decode_timedelta
            See `xarray.open_dataset`.
        group
            Path of the group; the root by default.
        branch, tag, snapshot_id, as_of
            The snapshot, as for `Repository.readonly_session`; the newest one of the branch ``"main"`` by default.
        ref
            Name of a branch or tag, or id of a snapshot, whichever there is.
        storage_options
            Arguments for `storage_from_url`, with a URL.
        authorize_virtual_chunk_access
            What virtual chunks may be read from, as for `Repository.open`, with a URL, path or storage.

        Raises
        ------
        FileNotFoundError
            If there is no such group.
        RepositoryNotFoundError
            If there is no repository.
        """
        place = reading.Place.of(
            filename_or_obj,
            branch=branch,
            tag=tag,
            snapshot_id=snapshot_id,
            ref=ref,
            as_of=as_of,
            storage_options=storage_options,
            authorize_virtual_chunk_access=authorize_virtual_chunk_access,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )
        return place.dataset(group)

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, group: str | None = None, **options: Any
    ) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it as datasets by path, with the options of `open_dataset`."""
        return reading.Place.of(filename_or_obj, **options).groups(group)

    def open_datatree(self, filename_or_obj: Any, *, group: str | None = None, **options: Any) -> xr.DataTree:
        """Open a group and all groups below it as a tree, with the options of `open_dataset`."""
        return reading.Place.of(filename_or_obj, **options).tree(group)


# xarray looks for these itself only where the engine is named, not where the class is passed
ArrayStoreBackendEntrypoint.open_dataset_parameters = tuple(
    name for name in inspect.signature(ArrayStoreBackendEntrypoint.open_dataset).parameters if name != "self"
)
