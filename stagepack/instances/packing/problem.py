"""LMEM packing: kind, objectives, words, and what is registered as `PROBLEM`."""

from __future__ import annotations

from enum import StrEnum

from stagepack.instances.problem import Change, Export, Problem, Tool
from stagepack.instances.words import Parameter

KIND = "lmem-packing"

GIVEN = frozenset({"capacity", "objective", "alignment", "period", "segment", "dim"})
"""What may be said beside a file."""


class Objective(StrEnum):
    """What an allocation should minimise."""

    PEAK = "peak"
    """The highest address used; a capacity is not enforced."""
    FIT = "fit"
    """The highest address used, but whatever fits the capacity will do."""
    BANK_CONFLICTS = "bank-conflicts"
    """First the pairs of buffers that share a bank, then the peak (or a weighted sum)."""
    MOVES = "moves"
    """The bytes of buffers that leave their previous offset, within the capacity."""
    SPILL = "spill"
    """The cost of accesses, over which memory each buffer lives in."""
    PENALTIES = "penalties"
    """The cost of penalised pairs of buffers that share addresses, within the capacity."""


WORDS = (
    Parameter(
        "alignment", int, "alignment of buffers that have none of their own", 1, 2**40, unit="bytes"
    ),
    Parameter("period", int, "lifetimes are circular modulo this", 1),
    Parameter("segment", int, "no buffer lies across a multiple of this", 1, 2**62, unit="bytes"),
    Parameter("fixed", bool, "the offsets of the file are given"),
    Parameter("previous", bool, "the offsets of the file are the old placement"),
    Parameter(
        "columns",
        str,
        "which columns of a table are which: size=bytes,lower=alloc,upper=free (last: included)",
        unit="role=name,...",
        option="instance",
    ),
    Parameter("assignment", str, "XLA's *-buffer-assignment.txt beside its live ranges"),
    # the generators
    Parameter("buffers", int, "number of buffers", 1, 2**24),
    Parameter("peak", int, "the optimum: height of the rectangle, in bytes", 1, 2**40),
    Parameter("of", str, "what is changed", choices=("planted", "pinwheel"), ending=".csv"),
    Parameter("number", int, "which relative of a file, of those of one seed"),
    Parameter("changes", int, "sizes and ends that are moved, sizes that are swapped", 1, 1000),
    Parameter("banks", int, "number of banks", 1, 2**10),
    Parameter("copies", int, "how many gadgets, one after the other", 1, 2**20),
    Parameter("levels", int, "how often sizes double", 1, 12),
    Parameter("kept", int, "buffers that a layer holds for long", 0, 2**20),
    Parameter("spread", float, "deviation of the logarithm of lifetimes", 0, 10),
)

SHORT = "true: names of buffers by their last parts, as far as these differ"

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
        Change(
            "memories",
            "--memory",
            "name=size",
            "a memory: fast=256KiB, or unlimited; also ,cost=2 ,alignment=64 ,reserved=0-4KiB; "
            "repeatable",
            texts="memories.memories",
        ),
        Change(
            "homes",
            "--only",
            "name=buffer",
            "a buffer lives in this memory only: fast=tensor3, 'fast=conv*'; repeatable",
            texts="memories.homes",
        ),
    ),
    export=Export(".csv"),
    tools={
        "c": Tool(
            "c_header.header",
            "a C header: sizes and offsets by memory, the totals, static asserts",
            {"prefix": "what all names begin with (ARENA)", "short": SHORT},
            requires="require_header",
            ending=".h",
        ),
        "ld": Tool(
            "linker_script.fragment",
            "a fragment of a linker script: regions, sections, a symbol a buffer",
            {
                "prefix": "what all symbols begin with (arena)",
                "origin": "where memories begin, fast@0x20000000;slow@0x60000000: adds MEMORY",
                "short": SHORT,
            },
            requires="require_fragment",
            ending=".ld",
        ),
        "dsa-solver": Tool(
            "dsa_solver.documents.solved",
            "a solution document of dsa-solver, with the fingerprint of its problem",
            {"problem": "the problem document: the file that is solved, if not said"},
            requires="require_problem",
        ),
        "tflm": Tool(
            "tflite.arena.planned",
            "a .tflite model with its plan, for TensorFlow Lite Micro",
            {"model": "the model without the plan: the file that is solved, if not said"},
            requires="require_model",
            ending=".tflite",
        ),
    },
    public=dict.fromkeys(
        (
            "Allowed",
            "Banks",
            "Dimensions",
            "Gap",
            "LmemPacking",
            "Memory",
            "PackingSolution",
            "Penalties",
            "View",
            "measure",
            "merge_programs",
            "split_programs",
        ),
        "",
    ),
)
