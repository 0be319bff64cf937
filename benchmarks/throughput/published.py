"""The figures that were published for one table of a table format, to place ours and the model's beside."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAST_APPEND", "OTHERS", "REMARKS", "Remark", "Row"]


@dataclass(frozen=True)
class Row:
    """One row of the table of fast appends on a catalog of 1 ms; times in seconds."""

    mean_ms: int
    throughput: float
    success: float
    p50: float
    p95: float
    p99: float
    retries: float


FAST_APPEND = (
    Row(5000, 0.2, 1.0, 0.32, 0.43, 0.53, 1.0),
    Row(2000, 0.4, 1.0, 0.32, 0.47, 0.59, 1.1),
    Row(1000, 0.8, 1.0, 0.33, 0.52, 0.67, 1.2),
    Row(500, 1.6, 1.0, 0.34, 0.64, 0.85, 1.4),
    Row(400, 2.1, 1.0, 0.35, 0.70, 0.96, 1.5),
    Row(300, 2.7, 0.999, 0.37, 0.86, 1.26, 1.8),
    Row(200, 4.0, 0.987, 0.47, 1.25, 1.67, 2.5),
    Row(100, 6.1, 0.740, 0.78, 1.72, 1.89, 4.5),
    Row(50, 6.9, 0.421, 0.90, 1.74, 1.89, 5.0),
    Row(20, 7.8, 0.190, 0.96, 1.74, 1.88, 5.3),
)


@dataclass(frozen=True)
class Remark:
    """A figure that the text of the study gives for one point.

    Parameters
    ----------
    what
        In words.
    mean_ms, light, catalog_ms
        The point.
    heavy
        Which of its transactions.
    figure
        ``success``, ``p99`` or ``mean``.
    low, high
        What is given; both the same, or the ends of a range.
    """

    what: str
    mean_ms: int
    light: float
    catalog_ms: float
    heavy: bool
    figure: str
    low: float
    high: float


REMARKS = (
    Remark("light success, all light", 20, 1.0, 1, False, "success", 0.20, 0.20),
    Remark("light success, 10 % light", 20, 0.1, 1, False, "success", 0.75, 0.75),
    Remark("light success, 90 % light", 200, 0.9, 1, False, "success", 0.99, 1.0),
    Remark("heavy success, 90 % light", 20, 0.9, 1, True, "success", 0.0, 0.05),
    Remark("heavy success, 90 % light", 100, 0.9, 1, True, "success", 0.20, 0.20),
    Remark("heavy success, all heavy", 100, 0.0, 1, True, "success", 0.62, 0.62),
    Remark("heavy success, 90 % light", 300, 0.9, 1, True, "success", 0.98, 1.0),
    Remark("heavy p99, 90 % light", 300, 0.9, 1, True, "p99", 150, 150),
    Remark("light success, all light", 200, 1.0, 1, False, "success", 0.99, 0.99),
    Remark("light success, all light", 200, 1.0, 120, False, "success", 0.76, 0.76),
    Remark("light success, all light", 500, 1.0, 120, False, "success", 0.99, 1.0),
    Remark("light success, all light", 20, 1.0, 120, False, "success", 0.10, 0.20),
    Remark("light mean latency, all light", 5000, 1.0, 1, False, "mean", 0.327, 0.327),
    Remark("light mean latency, all light", 5000, 1.0, 120, False, "mean", 0.70, 0.70),
    Remark("light success, 90 % light", 200, 0.9, 1, False, "success", 0.99, 0.99),
    Remark("light success, 90 % light", 200, 0.9, 120, False, "success", 0.78, 0.78),
    Remark("heavy success, 90 % light", 50, 0.9, 1, True, "success", 0.0, 0.05),
    Remark("heavy success, 90 % light", 200, 0.9, 1, True, "success", 0.84, 0.84),
    Remark("heavy success, 90 % light", 200, 0.9, 120, True, "success", 0.41, 0.41),
    Remark("heavy success, 90 % light", 500, 0.9, 1, True, "success", 0.97, 1.0),
    Remark("heavy success, 90 % light", 1000, 0.9, 120, True, "success", 0.97, 1.0),
)
"""What the text of the study says of mixes and of slower catalogs."""

OTHERS = (
    ("a table format on S3 Express One Zone", "14.6 commits/s"),
    ("a table format on GCS", "success degrades above 0.7 commits/s"),
    ("a copy-on-write catalog manifest on S3, one process, 1,000 rows", "3.6 commits/s"),
    ("the same with 100,000 rows", "2.1 commits/s"),
    ("the same with 1,000,000 rows", "0.5 commits/s"),
)
"""Other published rates."""
