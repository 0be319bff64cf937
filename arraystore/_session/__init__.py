"""Sessions and forks: their hierarchy, its Zarr store, rebase and commit."""
