"""Tests of the storage backends and wrappers."""
