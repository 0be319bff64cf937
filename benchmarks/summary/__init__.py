"""The screen that docs/benchmarks.md begins with: two charts, and why bars were missed, from the stored results."""
