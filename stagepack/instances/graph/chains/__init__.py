"""Graphs cut into chains: a partition as a chain of stages, a device as a chain of layers."""
