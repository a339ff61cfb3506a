"""Verifies proofs of bounds and of infeasibility, without the code that found them.

Plain Python over integers and Fractions: no NumPy, no numba, no engine, and nothing of heuristics,
formulations, solvers or methods.  It reads the data of an instance and what a result claims.  Each
problem has a module with its rules (``verify/<family>.py``); at its head stands why each is right.
"""

from stagepack.verify.rules import Claimed, Finding, Rules, UnprovedError, verify

__all__ = ["Claimed", "Finding", "Rules", "UnprovedError", "verify"]
