"""Chains made from graph partitions: of the stages, or of the nodes of one device."""
