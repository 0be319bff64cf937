"""Renew the summary of docs/benchmarks.md and its charts: python -m benchmarks.summary."""

from benchmarks.summary.page import renew

if __name__ == "__main__":
    renew()
