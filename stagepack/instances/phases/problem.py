"""What is to be known of phase schedules: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.phases.data import KIND, Objective
from stagepack.instances.phases.execute import check_program, is_program
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.program import program
from stagepack.instances.phases.solution import PhaseSolution
from stagepack.instances.problem import Export, Problem
from stagepack.instances.words import Parameter

PROBLEM = Problem(
    kind=KIND,
    instance=PhaseSchedule,
    solution=PhaseSolution,
    objectives=tuple(Objective),
    solution_fields=("boundaries", "mode"),
    words=(
        Parameter(
            "modes", str, "allowed loops: naive, compute, io, io_overlapped (commas between)"
        ),
        Parameter("policies", str, "what backward passes need: stash, keep, recompute (commas)"),
        Parameter("accumulation", int, "steps of gradient accumulation (of a loop)", 1, 2**31),
        Parameter("free_batch", bool, "the microbatch is free, the global batch is not"),
        Parameter("data_parallel", int, "replicas, which shard variables and state", 1, 2**20),
        Parameter("prefetch", bool, "load variables of the next phase beside a loop"),
        Parameter("recomputations", int, "how often a layer may be computed again", 0, 2**20),
        Parameter("budget", float, "memory: 0 as checkpoints need it, 1 to keep everything", 0, 1),
    ),
    export=Export(".json", program, is_program, check_program),
    public={
        "PhaseSchedule": "",
        "PhaseSolution": "",
        "plan": "plan",
        "program": "program",
        "check_program": "execute",
    },
)
