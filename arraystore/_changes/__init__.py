"""What a session has changed and read, and not committed."""
