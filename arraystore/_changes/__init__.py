"""Uncommitted changes and reads of a session."""
