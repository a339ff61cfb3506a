"""Limits on the work of engines: most of the seconds that a run has are turned into work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack import solvers
from stagepack.result import Status
from stagepack.solvers.engine import Outcome
from tests.random_graphs import random_instance as random_graph
from tests.random_phases import random_phases

PACES = {"graph-partition": (0.6, 1.05), "pipeline-partition": (1.2, 3.5), "phases": (0.6, 0.9)}
"""Work of CP-SAT in a second of CPU, as measured: least and most."""


def graph() -> Any:
    rng = np.random.default_rng([60, 4])
    return random_graph(rng, 60, objective="replicated", accelerators=4, cpus=0)


def chain() -> Any:
    draw = np.random.default_rng(1)
    return sp.PipelinePartition.from_arrays(
        draw.integers(1, 30, 8).tolist(),
        devices=3,
        objective="sum",
        recv_cycles=draw.integers(0, 25, (3, 9)),
        send_cycles=draw.integers(0, 25, (3, 9)),
    )


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (graph, "graph-partition"),
        (chain, "pipeline-partition"),
        (lambda: random_phases(1), "phases"),
    ],
)
def test_cp_sat_gets_work_for_most_of_the_limit(
    monkeypatch: pytest.MonkeyPatch, make: Any, kind: str
) -> None:
    given: list[float] = []

    def solve(self: Any, model: Any, **options: Any) -> Outcome:
        given.append(options["limits"].work_limit)
        return Outcome(status=Status.UNKNOWN)

    monkeypatch.setattr(type(solvers.engine("cp-sat")), "solve", solve)
    sp.solve(make(), "cp-sat", time_limit=25, options={"deterministic": True})
    least, most = PACES[kind]
    assert given
    assert max(given) >= 0.5 * 25 * (least + most) / 2
    assert max(given) <= 1.5 * 25 * (least + most) / 2
