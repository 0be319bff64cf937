"""The speed table: the work that users do, in every system that they could pick, in turns in one process."""
