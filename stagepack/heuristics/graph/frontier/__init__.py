"""The frontier method: labels over live tensors that find partitions and prove bounds."""
