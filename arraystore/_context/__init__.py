"""Context of all sessions of a repository: its storage, logs, caches and settings."""
