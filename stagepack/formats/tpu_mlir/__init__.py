"""TPU-MLIR: the buffers of its layer groups."""
