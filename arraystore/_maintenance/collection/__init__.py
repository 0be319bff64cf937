"""Garbage collection: a fence, then a trace of what is needed, then deleting what is not."""
