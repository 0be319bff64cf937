"""What all sessions of a repository share: its storage, logs, caches and settings."""
