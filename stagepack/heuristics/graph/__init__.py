"""Graph partitioning without engines: exact searches, heuristics and bounds."""
