"""Execution of plans: programs, symbolic execution, and simulation on two engines."""
