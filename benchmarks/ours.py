"""arraystore behind the face that all contenders have."""

from __future__ import annotations

from dataclasses import dataclass

from zarr.abc.store import Store

import arraystore
from arraystore.storage import Storage
from benchmarks.places import Place
from benchmarks.systems import System, Writer

__all__ = ["ArraystoreSystem"]


@dataclass(frozen=True, slots=True)
class _SessionWriter(Writer):
    session: arraystore.Session

    @property
    def store(self) -> Store:
        return self.session.store

    def commit(self) -> None:
        self.session.commit("benchmark")


@dataclass(frozen=True, slots=True)
class ArraystoreSystem(System):
    """This project.

    Parameters
    ----------
    name
        For tables.
    fsync
        Whether a commit on a local directory waits for the disk. The peers do not.
    """

    name: str = "arraystore"
    fsync: bool = False

    def storage(self, place: Place) -> Storage:
        """Its storage for a place."""
        if place.kind == "local":
            return arraystore.local_filesystem_storage(str(place.directory), fsync=self.fsync)
        if place.server is None:
            return arraystore.in_memory_storage()
        server = place.server
        return arraystore.s3_storage(
            bucket=server.bucket,
            prefix=place.prefix,
            endpoint_url=server.endpoint_url,
            allow_http=True,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            region=server.region,
            force_path_style=True,
        )

    def create(self, place: Place) -> arraystore.Repository:
        return arraystore.Repository.create(self.storage(place))

    def open(self, place: Place, handle: arraystore.Repository | None) -> arraystore.Repository:
        if place.kind == "memory" and handle is not None:
            return handle
        return arraystore.Repository.open(self.storage(place))

    def writer(self, handle: arraystore.Repository) -> Writer:
        return _SessionWriter(handle.writable_session("main"))

    def reader(self, handle: arraystore.Repository) -> Store:
        return handle.readonly_session("main").store
