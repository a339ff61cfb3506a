"""What is to be known of layer groupings: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.groups.words import KIND, WORDS, Objective
from stagepack.instances.problem import Export, Problem

PROBLEM = Problem(
    kind=KIND,
    instance="LayerGrouping",
    objectives=tuple(Objective),
    solution_fields=("boundaries", "slices"),
    words=WORDS,
    export=Export(".json", "group_program", {"program": "groups"}, "check_group_program"),
    public={
        **dict.fromkeys(
            ("GroupingSolution", "LaneChip", "LayerGrouping", "Operator", "Source", "Weight"), ""
        ),
        "group_program": "execution.program",
        "check_group_program": "execution.execute",
    },
)
