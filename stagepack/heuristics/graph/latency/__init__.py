"""The objective latency: the form of a graph for it, bounds, and a local search."""
