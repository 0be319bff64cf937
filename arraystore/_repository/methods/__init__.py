"""Methods of `Repository` by topic: signatures and documentation of functions that do the work elsewhere."""
