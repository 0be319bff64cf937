"""Sessions and forks: the hierarchy that they show, its Zarr store, rebase and commit."""
