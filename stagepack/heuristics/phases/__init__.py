"""Phase scheduling without a solver: the options of a group, baselines, exact search, bounds."""
