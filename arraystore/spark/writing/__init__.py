"""Writing rows of DataFrames into arrays."""
