"""Pipeline partitioning without a solver: baselines, exact dynamic programs, bounds."""
