"""Heuristics and bounds of pipeline schedules."""
