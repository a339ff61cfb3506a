"""Labels over live tensors: partitions along an order, proofs of bounds, windows of nodes."""
