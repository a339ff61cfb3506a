"""Layer grouping without engines: what groups cost, exact and greedy partitions."""
