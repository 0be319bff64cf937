"""Files made one virtual dataset of a group, in one commit: opened in batches, here or by workers, joined in order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import xarray as xr
from virtualizarr.manifests import ManifestArray

from arraystore import ConflictDetector, Repository, RepositoryConfig
from arraystore._chunks.virtual_chunk_container import ContainerAccess, VirtualChunkContainer
from arraystore._chunks.virtual_containers import VirtualContainers
from arraystore._format.locations import common_directory
from arraystore._runtime import run
from arraystore._runtime.engine import Engine, EngineOption, worker_engine
from arraystore._runtime.progress import Progress, callback_of, shows_progress
from arraystore._session.session import Session
from arraystore.errors import InvalidInputError
from arraystore.storage import Storage
from arraystore.storage.discarding import DiscardingStorage
from arraystore.virtual.datasets import virtual_array, write_virtual_dataset
from arraystore.virtual.errors import VirtualizeError
from arraystore.virtual.files import open_virtual_file, source_url
from arraystore.virtual.fixed_variables import check_sources
from arraystore.virtual.joining import check_joinable, check_lengths
from arraystore.virtual.plain_datasets import from_plain, to_plain

__all__ = ["VirtualizeReport", "virtualize"]

_BATCH = 64
"""Files that are joined at a time: their references are in memory together."""
_THREADS = 8

_END = object()


@dataclass(frozen=True)
class VirtualizeReport:
    """Result of `virtualize`."""

    snapshot_id: str
    """The commit; empty for a dry run."""
    message: str
    """Its message."""
    files: int
    """Files that are referred to."""
    containers: tuple[str, ...]
    """Prefixes of containers that were saved in the repository for them, or, in a dry run, would be."""
    dry_run: bool = False
    """True if nothing was written."""


@dataclass(frozen=True)
class _Parsing:
    """Choices for opening and joining files; it travels to executors."""

    containers: tuple[tuple[VirtualChunkContainer, ContainerAccess], ...]
    source_group: str | None
    skip: tuple[str, ...]
    loadable: tuple[str, ...] | None
    dim: str | None
    compare: bool = True

    def joined(self, urls: Sequence[str]) -> xr.Dataset:
        """Return files as one dataset, in their order."""
        with ThreadPoolExecutor(min(_THREADS, len(urls)), thread_name_prefix="arraystore-virtual") as threads:
            datasets = list(threads.map(self._open, urls))
        if self.dim is None or len(datasets) == 1:
            return datasets[0]
        for url, each in zip(urls, datasets, strict=True):
            if self.dim not in each.dims:
                raise VirtualizeError(f"{url!r} has no dimension {self.dim!r} to join files along: {list(each.dims)}")
        check_joinable(urls, datasets, self.dim)
        if self.compare:
            self._check_fixed(urls, datasets)
        try:
            return xr.concat(
                datasets,
                dim=self.dim,
                data_vars="minimal",
                coords="minimal",
                compat="override",
                join="override",
                combine_attrs="override",
            )
        except (ValueError, NotImplementedError, TypeError) as error:
            raise VirtualizeError(
                f"files from {urls[0]!r} to {urls[-1]!r} cannot be joined along {self.dim!r}: {error}"
            ) from error

    def _check_fixed(self, urls: Sequence[str], datasets: Sequence[xr.Dataset]) -> None:
        """Compare the values of variables of references that are not joined."""
        containers = VirtualContainers(
            {each.url_prefix: access for each, access in self.containers}, [each for each, _ in self.containers]
        )
        for name, kept in datasets[0].variables.items():
            if isinstance(kept.data, ManifestArray) and self.dim not in kept.dims:
                has = [
                    (url, each.variables[name])
                    for url, each in zip(urls, datasets, strict=True)
                    if name in each.variables
                ]
                check_sources(str(name), [url for url, _ in has], [virtual_array(each) for _, each in has], containers)

    def _open(self, url: str) -> xr.Dataset:
        container, access = next(each for each in self.containers if url.startswith(each[0].url_prefix))
        return open_virtual_file(
            url,
            container,
            access=access,
            source_group=self.source_group,
            skip=self.skip,
            loadable_variables=self.loadable,
        )


@shows_progress("Opening")
def virtualize(
    files: Iterable[str | os.PathLike[str]],
    storage: Storage,
    *,
    group: str = "",
    branch: str = "main",
    concat_dim: str | None = None,
    append_dim: str | None = None,
    container: VirtualChunkContainer | None = None,
    access: Mapping[str, ContainerAccess] | None = None,
    source_group: str | None = None,
    skip: Iterable[str] = (),
    loadable_variables: Iterable[str] | None = None,
    compare: bool = True,
    message: str | None = None,
    dry_run: bool = False,
    engine: EngineOption = "threads",
    progress: Progress | bool = False,
) -> VirtualizeReport:
    """Refer to NetCDF, HDF5, GRIB and TIFF files from a group, in one commit; only coordinates are copied.

    Parameters
    ----------
    files
        Paths or URLs, in the order in which they are joined.
    storage
        Where the repository is; it is created if it does not exist.
    group
        Path of the group.
    branch
        Branch to commit to.
    concat_dim
        Dimension along which the files follow each other.
    append_dim
        The same, and arrays that exist grow along it.
    container
        Place that the files are in, saved in the repository unless they are in one that is; by default their common
        directory.
    access
        What containers are read with, as in ``authorize_virtual_chunk_access``; those of the files with credentials
        of the environment by default, and others, which arrays that grow refer to, only if they are named.
    source_group, skip, loadable_variables
        As for `open_virtual_file`.
    compare
        Whether variables without the dimension, of which one is kept for all files, are read from each file and
        compared; False trusts that they are equal.
    message
        Message of the commit.
    dry_run
        Whether all files are opened, and checked against each other and what is there, and nothing is written.
    engine
        Where files are opened: ``"threads"`` of this process, or, where they are thousands, ``"spark"`` for the
        executors of the active session, or an engine (`arraystore.spark.engine`).  Workers must be able to read them.
    progress
        True to show a progress bar (extra ``progress``), or a callable.  That is called with the files done and their
        total.

    Raises
    ------
    VirtualizeError
        If a file cannot be referred to, or the files do not fit each other or what is there.
    AlreadyExistsError
        If a variable exists and `append_dim` is not passed.
    """
    urls = [source_url(file) for file in files]
    dim = append_dim or concat_dim
    _check(urls, concat_dim, append_dim)
    repository, added, chosen = _repository(
        DiscardingStorage(storage) if dry_run else storage, urls, container, access or {}
    )
    loadable = None if loadable_variables is None else tuple(loadable_variables)
    parsing = _Parsing(tuple(chosen), source_group, tuple(skip), loadable, dim, compare)
    session = repository.writable_session(branch)
    done, report = 0, callback_of(progress)
    batches = [urls[start : start + _BATCH] for start in range(0, len(urls), _BATCH)]
    for number, dataset in enumerate(_parsed(parsing, batches, worker_engine(engine))):
        along = append_dim if number == 0 else dim
        write_virtual_dataset(dataset, session, group=group, append_dim=along, compare=compare)
        done += len(batches[number])
        if report is not None:
            report(done, len(urls))
    if dim is not None:
        check_lengths(session, group, dim)
    text = message or _default_message(urls, group)
    if dry_run:
        return VirtualizeReport("", text, len(urls), added, dry_run)
    return _commit(session, text, urls, added)


def _check(urls: Sequence[str], concat_dim: str | None, append_dim: str | None) -> None:
    if not urls:
        raise InvalidInputError("there is no file to refer to: name one")
    if concat_dim is not None and append_dim is not None and concat_dim != append_dim:
        raise InvalidInputError("concat_dim and append_dim must be the same dimension: pass append_dim only")
    if len(urls) > 1 and concat_dim is None and append_dim is None:
        raise InvalidInputError(f"{len(urls)} files need a dimension along which they follow each other: concat_dim")


def _repository(
    storage: Storage,
    urls: Sequence[str],
    container: VirtualChunkContainer | None,
    access: Mapping[str, ContainerAccess],
) -> tuple[Repository, tuple[str, ...], list[tuple[VirtualChunkContainer, ContainerAccess]]]:
    """Open or create a repository whose containers have all files; return what was added and what files are in."""
    exists = Repository.exists(storage)
    config = (Repository.fetch_config(storage) if exists else None) or RepositoryConfig()
    saved = config.virtual_chunk_containers
    outside = [url for url in urls if not any(url.startswith(each.url_prefix) for each in saved)]
    added: tuple[VirtualChunkContainer, ...] = ()
    if outside:
        added = (container or container_of(outside),)
        lost = next((url for url in outside if not url.startswith(added[0].url_prefix)), None)
        if lost is not None:
            raise InvalidInputError(f"{lost!r} is not in the container {added[0].url_prefix!r}: pass another one")
    config = config.merge(virtual_chunk_containers=(*saved, *added))
    used = sorted(config.virtual_chunk_containers, key=lambda each: len(each.url_prefix), reverse=True)
    used = [each for each in used if any(url.startswith(each.url_prefix) for url in urls)]
    grants = {prefix: access[prefix] for prefix in access if any(each.url_prefix == prefix for each in saved)}
    grants |= {each.url_prefix: access.get(each.url_prefix) for each in used}
    if not exists:
        repository = Repository.create(storage, config, authorize_virtual_chunk_access=grants)
    else:
        repository = Repository.open(storage, config, authorize_virtual_chunk_access=grants)
        if added:
            repository.save_config()
    prefixes = tuple(each.url_prefix for each in added)
    return repository, prefixes, [(each, grants[each.url_prefix]) for each in used]


def container_of(files: Iterable[str | os.PathLike[str]]) -> VirtualChunkContainer:
    """Return the container of some files: the directory that they have in common."""
    urls = [source_url(file) for file in files]
    directory = common_directory(urls)
    if directory.endswith("//") or not directory:
        raise InvalidInputError(
            f"{min(urls)!r} and {max(urls)!r} have no directory in common: refer to them one after the other"
        )
    return VirtualChunkContainer(directory)


def _parsed(parsing: _Parsing, batches: Sequence[Sequence[str]], engine: Engine | None) -> Iterator[xr.Dataset]:
    """Yield the dataset of each batch, in order."""
    if engine is None:
        yield from map(parsing.joined, batches)
        return
    results = engine.run(_OpenFiles(parsing), _each(batches), "opening files")
    try:
        while (result := run(_next(results))) is not _END:
            yield from_plain(result)
    finally:
        run(results.aclose())


async def _next(results: AsyncIterator[Any]) -> Any:
    return await anext(results, _END)


async def _each(batches: Sequence[Sequence[str]]) -> AsyncIterator[Sequence[str]]:
    for batch in batches:
        yield batch


@dataclass(frozen=True)
class _OpenFiles:
    """Work of a task: a batch of files is opened and joined."""

    parsing: _Parsing

    async def __call__(self, batch: Sequence[str]) -> Any:
        return to_plain(await asyncio.to_thread(self.parsing.joined, batch))


def _commit(session: Session, message: str, urls: Sequence[str], added: tuple[str, ...]) -> VirtualizeReport:
    metadata = {"virtualize.files": len(urls), "virtualize.first": urls[0].rpartition("/")[2]}
    snapshot = session.commit(message, metadata, rebase_with=ConflictDetector())
    run(session.context.idle())  # a batch job leaves nothing behind in the background
    return VirtualizeReport(snapshot, message, len(urls), added)


def _default_message(urls: Sequence[str], group: str) -> str:
    what = urls[0].rpartition("/")[2] if len(urls) == 1 else f"{len(urls)} files"
    return f"Refer to {what} from /{group.strip('/')}"
