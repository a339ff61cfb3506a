"""A packing made lower step by step: annealing, windows of time packed anew, cores."""
