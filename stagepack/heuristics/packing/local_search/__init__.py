"""Local searches that lower a packing: annealing, windows of time, cores, overlaps."""
