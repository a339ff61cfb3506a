"""Beam search over packings from the bottom up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.packing.beam_search import beam as beam
    from stagepack.heuristics.packing.beam_search import beam_state as beam_state
else:
    __getattr__ = on_demand(__name__)
