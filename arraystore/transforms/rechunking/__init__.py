"""Rechunking: its plan, and its run on a branch of its own."""
