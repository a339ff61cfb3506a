"""Stages as the tools take them that train and serve: one file a family of tools."""
