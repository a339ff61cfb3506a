"""Instances small enough to work out by hand."""

from __future__ import annotations

from typing import Any

from stagepack.instances.phases import PhaseSchedule, PhaseSolution

TWO = ("compute",) * 3


def two_layers(**changes: Any) -> PhaseSchedule:
    """Two layers that train in three phases, F0, FB1 and B0."""
    return PhaseSchedule.from_arrays(
        **{
            "variables": [10, 20],
            "forward": [7, 9],
            "activations": [6, 8, 2],
            "backward": [14, 18],
            "state": [4, 6],
            "update": [2, 3],
            "temporary": [1, 1],
            "tape": [3, 5],
            "remote_bandwidth": 2,
            "host_bandwidth": 3,
            "startup": 1,
            "memory": 100,
            "steps": 2,
            "training": True,
            "policies": ["stash", "keep", "recompute"],
            "modes": ["naive", "compute"],
            **changes,
        }
    )


def two_groups(policy: str = "stash", **changes: Any) -> PhaseSolution:
    """The plan of a layer a group; layer 0 has this policy, layer 1 is stashed."""
    return PhaseSolution(
        **{"boundaries": (0, 1, 2), "mode": TWO, "policy": (policy, "stash"), **changes}
    )


def unet(**changes: Any) -> PhaseSchedule:
    """Four layers in one phase; layer 3 reads what layer 0 writes, too."""
    return PhaseSchedule.from_arrays(
        **{
            "variables": [0] * 4,
            "forward": [1] * 4,
            "activations": [1, 10, 20, 30, 1],
            "backward": [2] * 4,
            "skips": [(0, 3)],
            "training": True,
            "policies": ["keep", "recompute"],
            "modes": ["compute"],
            "recomputations": 2,
            "fixed_boundaries": [0, 4],
            **changes,
        }
    )
