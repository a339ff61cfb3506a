"""Floor 1: what a problem is, what a solution is, and whether it is right."""
