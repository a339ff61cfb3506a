"""The registration of phase scheduling: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.phases.words import KIND, WORDS, Objective
from stagepack.instances.problem import Export, Problem

PROBLEM = Problem(
    kind=KIND,
    instance="PhaseSchedule",
    objectives=tuple(Objective),
    solution_fields=("boundaries", "mode"),
    words=WORDS,
    export=Export(".json", "program", {"program": "phases"}, "check_program"),
    public={
        "PhaseSchedule": "",
        "PhaseSolution": "",
        "plan": "plan",
        "program": "execution.program",
        "check_program": "execution.execute",
    },
)
