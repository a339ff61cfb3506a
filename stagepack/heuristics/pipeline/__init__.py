"""Pipeline partitioning without a solver: baselines, exact dynamic programs, bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stagepack.kinds import on_demand

if TYPE_CHECKING:
    from stagepack.heuristics.pipeline import baselines as baselines
    from stagepack.heuristics.pipeline import bisect as bisect
    from stagepack.heuristics.pipeline import bounds as bounds
    from stagepack.heuristics.pipeline import dp as dp
    from stagepack.heuristics.pipeline import even as even
    from stagepack.heuristics.pipeline import latency as latency
    from stagepack.heuristics.pipeline import loaded_bound as loaded_bound
    from stagepack.heuristics.pipeline import loaded_steps as loaded_steps
    from stagepack.heuristics.pipeline import options as options
    from stagepack.heuristics.pipeline import prober as prober
    from stagepack.heuristics.pipeline import reference as reference
    from stagepack.heuristics.pipeline import repair as repair
    from stagepack.heuristics.pipeline import rounds as rounds
    from stagepack.heuristics.pipeline import staircase as staircase
    from stagepack.heuristics.pipeline import step_bound as step_bound
    from stagepack.heuristics.pipeline import step_stages as step_stages
    from stagepack.heuristics.pipeline import tuning as tuning
else:
    __getattr__ = on_demand(__name__)
