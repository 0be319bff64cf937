"""Parallel writes of arrays, region by region."""
