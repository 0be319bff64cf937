"""Forks of sessions: payloads with their changes, and merging many of them into their session."""
