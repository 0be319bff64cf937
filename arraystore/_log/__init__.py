"""Logs of branches and of the repository: read, appended to, and the snapshots that they create."""
