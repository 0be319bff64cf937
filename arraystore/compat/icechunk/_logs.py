"""Logs and telemetry: arraystore writes none, so that there is nothing to set up."""

from __future__ import annotations

__all__ = ["initialize_logs", "set_logs_filter", "shutdown_telemetry"]


def initialize_logs() -> None:
    """Do nothing: there are no logs."""


def set_logs_filter(log_filter_directive: str | None) -> None:
    """Do nothing: there are no logs."""


def shutdown_telemetry() -> None:
    """Do nothing: there is no telemetry."""
