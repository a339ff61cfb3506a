"""Execution of plans: programs, symbolic execution, and simulation on the engines of a chip."""
