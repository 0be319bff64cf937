"""Other libraries' names over this one: programs that were written for them run after changing an import."""
