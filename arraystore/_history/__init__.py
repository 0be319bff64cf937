"""History: differences of snapshots, graphs, times, and what keeps a snapshot reachable."""
