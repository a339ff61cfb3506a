"""Floor 0: how kernels are compiled, and what is interpreted instead."""
