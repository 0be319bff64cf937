"""Command line ``arraystore``."""

from arraystore.cli.main import main

__all__ = ["main"]
