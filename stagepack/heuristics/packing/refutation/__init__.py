"""Proofs that buffers do not fit, found and written down."""
