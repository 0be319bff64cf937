"""Garbage collection: fencing, tracing of referenced objects, deletion of unreferenced ones."""
