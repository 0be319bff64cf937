"""Copies of repositories and branches, and imports and exports of plain Zarr and Icechunk."""

from arraystore.copying.branch import copy_branch, copy_branch_async
from arraystore.copying.clone import clone_repository, clone_repository_async
from arraystore.copying.errors import CopyDivergedError, CopyError, CopyIncompleteError, CopyTargetError
from arraystore.copying.icechunk_import import import_icechunk, import_icechunk_async
from arraystore.copying.report import (
    BranchCopyReport,
    CopyProgress,
    CopyReport,
    ImportReport,
    LeftOut,
    TransferReport,
)
from arraystore.copying.virtual_chunks import MaterializeReport, materialize, materialize_async
from arraystore.copying.zarr_export import export_zarr, export_zarr_async
from arraystore.copying.zarr_import import import_zarr, import_zarr_async

__all__ = [
    "BranchCopyReport",
    "CopyDivergedError",
    "CopyError",
    "CopyIncompleteError",
    "CopyProgress",
    "CopyReport",
    "CopyTargetError",
    "ImportReport",
    "LeftOut",
    "MaterializeReport",
    "TransferReport",
    "clone_repository",
    "clone_repository_async",
    "copy_branch",
    "copy_branch_async",
    "export_zarr",
    "export_zarr_async",
    "import_icechunk",
    "import_icechunk_async",
    "import_zarr",
    "import_zarr_async",
    "materialize",
    "materialize_async",
]


def __dir__() -> list[str]:
    return sorted(__all__)
