"""Proofs of phases: why no program is shorter, or none fits."""

from __future__ import annotations

from stagepack.verify.rules import Rules

RULES: Rules = {}

UNAIDED: tuple[str, ...] = ()
"""Rules that need no evidence, in the order in which they are tried."""
