"""LMEM packing without a solver: greedy orders, dives, annealing and an exact search."""
