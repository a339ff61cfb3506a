"""The registration of LMEM packing: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stagepack.instances.packing.words import KIND, WORDS, Objective
from stagepack.instances.problem import Change, Export, Problem, Tool


def _previous(path: Path, instance: Any) -> list[int]:
    from stagepack.instances.formats.minimalloc import read_previous

    return read_previous(path, instance)


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
            _previous,
        ),
    ),
    export=Export(".csv"),
    tools={
        "c": Tool(
            "tools.header.header",
            "a C header: sizes, offsets, the total, static asserts",
            {"prefix": "what all names begin with (ARENA)"},
            requires="require_header",
            ending=".h",
        ),
        "tflm": Tool(
            "tools.tflm.planned",
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
