"""Vela: its tables of tensors in memories."""
