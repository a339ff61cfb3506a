"""Constructive heuristics: rules, dives, valleys, and the choice among several memories."""
