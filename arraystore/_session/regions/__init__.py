"""Regions of arrays, read and written without zarr's step for each chunk."""
