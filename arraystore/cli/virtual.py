"""Virtual chunks: ``virtualize`` refers to files, ``materialize`` copies what is referred to."""

from __future__ import annotations

from typing import Annotated

import typer

from arraystore._runtime.formatting import count_text
from arraystore.cli.console import print_report, print_result
from arraystore.cli.engine import EngineName, Master, On, open_engine
from arraystore.cli.ingest import Group, Repo, Skip, SourceGroup
from arraystore.cli.options import Authorize, Branch, DryRun, Json, Message, Url
from arraystore.cli.progress import progress_bar
from arraystore.cli.sizes import parse_size
from arraystore.errors import VirtualReferenceError

Files = Annotated[
    list[str], typer.Argument(metavar="FILE…", help="NetCDF, HDF5, GRIB and TIFF files: paths or URLs, in their order.")
]
ConcatDim = Annotated[
    str | None, typer.Option("--concat-dim", metavar="DIM", help="Dimension along which the files follow each other.")
]
AppendDim = Annotated[
    str | None, typer.Option("--append-dim", metavar="DIM", help="The same, and existing arrays grow along it.")
]
Container = Annotated[
    str | None,
    typer.Option(
        "--container",
        metavar="PREFIX",
        help="URL prefix that is saved as the container of the files; their common directory by default.",
    ),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare/--no-compare",
        help="Read variables without the dimension from each file, and refuse files in which they differ.",
    ),
]
Anonymous = Annotated[bool, typer.Option("--anonymous", help="The container is read without credentials.")]
Region = Annotated[str | None, typer.Option("--region", metavar="NAME", help="Region of the container, for S3.")]
Endpoint = Annotated[
    str | None,
    typer.Option("--endpoint-url", metavar="URL", help="Endpoint of the container, for S3-compatible services."),
]
AllowHttp = Annotated[bool, typer.Option("--allow-http", help="The container may be unencrypted.")]
BatchBytes = Annotated[str, typer.Option("--batch", metavar="SIZE", help="Size of a batch, each of which is a commit.")]


def virtualize(
    files: Files,
    repo: Repo,
    branch: Branch = "main",
    group: Group = "",
    concat_dim: ConcatDim = None,
    append_dim: AppendDim = None,
    skip: Skip = None,
    source_group: SourceGroup = None,
    compare: Compare = True,
    container: Container = None,
    authorize: Authorize = None,
    region: Region = None,
    endpoint_url: Endpoint = None,
    allow_http: AllowHttp = False,
    anonymous: Anonymous = False,
    message: Message = None,
    engine: On = EngineName.threads,
    master: Master = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Refer to NetCDF-3, NetCDF-4, HDF5, GRIB and TIFF files from a group, in one commit, without copying them.

    The place of the files is saved in the repository as a container, which readers authorise when they open it. Only
    coordinates are copied. Needs the extra arraystore[virtual].
    """
    from arraystore import VirtualChunkContainer
    from arraystore.cli.resolve import open_storage
    from arraystore.virtual import virtualize as refer
    from arraystore.virtual.run import container_of

    place: VirtualChunkContainer | None = None
    if container or region or endpoint_url or allow_http or anonymous:
        place = VirtualChunkContainer(
            container or container_of(files).url_prefix, region=region, endpoint_url=endpoint_url,
            allow_http=allow_http, anonymous=anonymous,
        )  # fmt: skip
    with progress_bar("Opening") as progress:
        report = refer(
            files, open_storage(repo), group=group, branch=branch, concat_dim=concat_dim, append_dim=append_dim,
            container=place, source_group=source_group, skip=skip or (), compare=compare, message=message,
            access=dict.fromkeys(authorize or ()), dry_run=dry_run, engine=open_engine(engine, master),
            progress=progress,
        )  # fmt: skip
    added = f" Saved the container {', '.join(report.containers)}." if report.containers else ""
    text = f"Referred to {count_text(report.files, 'file')} in snapshot {report.snapshot_id}.{added}"
    if dry_run:
        place_text = f" and save the container {', '.join(report.containers)}" if report.containers else ""
        text = f"Would refer to {count_text(report.files, 'file')}{place_text}; nothing was written."
    print_result(
        as_json, text, snapshot=report.snapshot_id, message=report.message, files=report.files,
        containers=report.containers, dry_run=report.dry_run,
    )  # fmt: skip


def materialize(
    url: Url,
    branch: Branch = "main",
    group: Group = "",
    authorize: Authorize = None,
    batch: BatchBytes = "1GiB",
    message: Message = None,
    engine: On = EngineName.threads,
    master: Master = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Copy virtual chunks into the repository, as they are encoded, so that it needs their sources no longer.

    Each batch is a commit: run it again to continue after an interruption. Older snapshots keep their references.
    """
    from arraystore.cli.resolve import open_repository
    from arraystore.copying import materialize as copy

    size = parse_size(batch, option="--batch")
    with progress_bar("Copying") as progress:
        try:
            report = copy(
                open_repository(url, authorize), branch=branch, group=group, batch_bytes=size, message=message,
                dry_run=dry_run, engine=open_engine(engine, master), progress=progress,
            )  # fmt: skip
        except VirtualReferenceError as error:
            error.add_note("On the command line: --authorize PREFIX.")
            raise
    print_report(as_json, report)
