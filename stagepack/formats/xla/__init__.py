"""XLA: its live ranges and buffer assignments."""
