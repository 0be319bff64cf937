"""Benchmarks of arraystore against its nearest peer and plain zarr; `python -m benchmarks --help` tells how to run."""
