"""Rows of DataFrames into arrays."""
