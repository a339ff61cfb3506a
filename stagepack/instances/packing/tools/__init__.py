"""Offsets as other tools take them: one file a tool."""
