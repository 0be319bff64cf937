"""Arrays written in parallel, region by region."""
