"""Bring NetCDF, HDF5 and Zarr data into a repository through Spark: `ingest`, and the plan behind it."""

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
