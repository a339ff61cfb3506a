"""Exports of offsets for other tools, one file for each tool."""
