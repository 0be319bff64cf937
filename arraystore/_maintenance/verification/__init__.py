"""Verification: a walk over all objects that branches and tags lead to, and findings of damage."""
