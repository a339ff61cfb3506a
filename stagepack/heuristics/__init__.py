"""Floor 2: exact dynamic programs, greedy rules, search and combinatorial bounds."""
