"""Verification: walking everything that branches and tags lead to, and telling what is wrong with it."""
