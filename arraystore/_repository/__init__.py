"""Repositories: branches, tags, settings, history, verification and maintenance."""
