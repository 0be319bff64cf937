"""Streams into arrays, each batch once, and the change feed of a branch as a stream."""
