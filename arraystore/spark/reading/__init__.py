"""Arrays of a snapshot as DataFrames."""
