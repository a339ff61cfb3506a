"""The cost of work on phase schedules, for the clock of :mod:`stagepack.heuristics.effort`."""

from __future__ import annotations

from stagepack.heuristics.effort import counting, spend, spent

__all__ = ["counting", "plan", "spend", "spent"]

LOOK = 5e-6
"""Seconds of a step of Python that calls a kernel or two."""

LAYER, PHASE = 1e-6, 1e-5
"""Seconds of a layer and a phase of a plan, to assemble, check and evaluate it."""

MOMENTS, LAYER_MOMENTS, PHASE_MOMENTS = 512, 1.2e-5, 6e-5
"""Layers up to which plans are gone through moment by moment, and seconds of a layer and a phase
then."""

GROUP = 2e-7
"""Seconds of a group's sums and traffic."""

READ = 3e-8
"""Seconds of a tensor that is read, in passes over arrays or in kernels."""

ROW = 1.5e-7
"""Seconds of an option in one mode: times, idle cycles, and the sorting of what is beaten."""

LABEL, MET = 2.5e-7, 7e-8
"""Seconds of a label of policies: to grow, sort and keep it; and of one that options lead to."""

COMPARISON = 1e-9
"""Seconds of a comparison of two rows or labels."""


def plan(layers: int, phases: int, training: bool) -> None:
    """Count that a plan is assembled, checked and evaluated.

    Parameters
    ----------
    layers, phases : int
    training : bool
        Then layers count three times.
    """
    spend(15 * LOOK)
    times = 3 if training else 1
    if layers > MOMENTS:
        spend(times * LAYER * layers + PHASE * phases)
    else:
        spend(times * LAYER_MOMENTS * layers + PHASE_MOMENTS * phases)
