"""The registration of LMEM packing: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from stagepack.instances.packing.words import KIND, WORDS, Objective
from stagepack.instances.problem import Change, Export, Problem, Tool

PROBLEM = Problem(
    kind=KIND,
    instance="LmemPacking",
    objectives=tuple(Objective),
    solution_fields=("offsets",),
    needs_instance=True,
    words=WORDS,
    changes=(
        Change(
            "previous",
            "--previous",
            "file",
            "old placement (result or CSV): buffers of equal names should stay in place",
            "minimalloc.buffers.read_previous",
        ),
    ),
    export=Export(".csv"),
    tools={
        "c": Tool(
            "c_header.header",
            "a C header: sizes, offsets, the total, static asserts",
            {"prefix": "what all names begin with (ARENA)"},
            requires="require_header",
            ending=".h",
        ),
        "tflm": Tool(
            "tflite.tflm.planned",
            "a .tflite model with its plan, for TensorFlow Lite Micro",
            {"model": "the model without the plan: the file that is solved, if not said"},
            requires="require_model",
            ending=".tflite",
        ),
    },
    public=dict.fromkeys(
        ("Allowed", "Banks", "Gap", "LmemPacking", "Memory", "PackingSolution", "measure"), ""
    ),
)
