"""Phase scheduling: kind, objectives, words, and what is registered as `PROBLEM`."""

from __future__ import annotations

from enum import StrEnum

from stagepack.instances.problem import Export, Problem
from stagepack.instances.words import Parameter

KIND = "phase-schedule"


class Objective(StrEnum):
    """What a plan should minimise."""

    TIME = "time"
    """Cycles of the whole global batch: all phases, less what prefetching hides."""


WORDS = (
    Parameter("modes", str, "allowed loops: naive, compute, io, io_overlapped (commas between)"),
    Parameter("policies", str, "what backward passes need: stash, keep, recompute (commas)"),
    Parameter("accumulation", int, "steps of gradient accumulation (of a loop)", 1, 2**31),
    Parameter("free_batch", bool, "the microbatch is free, the global batch is not"),
    Parameter("data_parallel", int, "replicas, which shard variables and state", 1, 2**20),
    Parameter("prefetch", bool, "load variables of the next phase beside a loop"),
    Parameter("recomputations", int, "how often a layer may be computed again", 0, 2**20),
    Parameter("budget", float, "memory: 0 as checkpoints need it, 1 to keep everything", 0, 1),
)

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
