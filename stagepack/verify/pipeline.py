"""Proofs of chains: why no partition is better, or none fits."""

from __future__ import annotations

from stagepack.verify.rules import Rules

RULES: Rules = {}

UNAIDED: tuple[str, ...] = ()
"""Rules that need no evidence, in the order in which they are tried."""
