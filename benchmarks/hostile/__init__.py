"""Hostile but legal instances: the largest, smallest and strangest of every kind.

A family is a function that takes a share of its full size and returns an instance: 1 for the soak
of limits (:mod:`benchmarks.soak_limits`), less for warming up on all of the same features.
"""

from benchmarks.hostile import graph, groups, packing, phases, pipeline, schedule
from benchmarks.hostile.families import FAMILIES, Family

__all__ = ["FAMILIES", "Family", "graph", "groups", "packing", "phases", "pipeline", "schedule"]
