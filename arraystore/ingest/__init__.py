"""Bring NetCDF, HDF5 and Zarr data into a repository through Spark: `ingest`, and the plan behind it."""

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names
from arraystore._runtime.extras import check_extra

check_extra(__name__, "xarray,spark", "xarray", "pyspark")

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "arraystore.ingest.chunks": "parse_chunks",
            "arraystore.ingest.errors": (
                "AlignmentError IngestError SourceFormatError SourceNotFoundError TargetExistsError "
                "VariableMismatchError"
            ),
            "arraystore.ingest.plan": "IngestPlan plan_ingest",
            "arraystore.ingest.run": "IngestReport PreparedIngest carry_out ingest prepare",
            "arraystore.ingest.source": "describe_source",
        },
    )
else:
    from arraystore.ingest.chunks import parse_chunks
    from arraystore.ingest.errors import (
        AlignmentError,
        IngestError,
        SourceFormatError,
        SourceNotFoundError,
        TargetExistsError,
        VariableMismatchError,
    )
    from arraystore.ingest.plan import IngestPlan, plan_ingest
    from arraystore.ingest.run import IngestReport, PreparedIngest, carry_out, ingest, prepare
    from arraystore.ingest.source import describe_source

__all__ = [
    "AlignmentError",
    "IngestError",
    "IngestPlan",
    "IngestReport",
    "PreparedIngest",
    "SourceFormatError",
    "SourceNotFoundError",
    "TargetExistsError",
    "VariableMismatchError",
    "carry_out",
    "describe_source",
    "ingest",
    "parse_chunks",
    "plan_ingest",
    "prepare",
]
