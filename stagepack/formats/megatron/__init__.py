"""Megatron-LM: layouts of layers on stages."""
