"""Chains whose layers have alternatives: what stages cost at least, and which are chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.pipeline.options import search as search
else:
    __getattr__ = on_demand(__name__)
