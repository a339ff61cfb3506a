"""Layer grouping: kind, objectives, words, and what is registered as `PROBLEM`."""

from __future__ import annotations

from enum import StrEnum

from stagepack.instances.problem import Export, Problem
from stagepack.instances.words import Parameter

KIND = "layer-grouping"
CHIP_NAMES = ("generic", "bm1684", "bm1684x", "bm1690", "bm1688", "cv184x")


class OperatorKind(StrEnum):
    """What an operator computes, as far as parts of it are concerned."""

    CONV = "conv"
    """Convolution; a fully connected layer is one with a kernel of 1 over tokens as rows."""
    DECONV = "deconv"
    """Transposed convolution."""
    POOL = "pool"
    """Maximum or average over a window."""
    GLOBAL_POOL = "global-pool"
    """Over all rows and columns."""
    UPSAMPLE = "upsample"
    """Each value repeated."""
    INTERPOLATE = "interpolate"
    """Rows and columns at positions between those that are read: more or fewer of them."""
    ELEMENTWISE = "elementwise"
    """Value by value of one or several inputs, of equal sizes or of size 1 on some axes."""
    CONCAT = "concat"
    """One input after the other along channels."""
    MATMUL = "matmul"
    """(n, c, 1, rows, inner) times (n, c, 1, inner, columns)."""
    ROWS = "rows"
    """Value by value, but with figures of whole ranges: softmax, norms (see ``whole``)."""
    OTHER = "other"
    """Anything else: it runs from and to global memory, in a group of its own."""


class Interpolation(StrEnum):
    """From how many rows, and columns, around its position a value is interpolated."""

    LINEAR = "linear"
    """From the two between which it lies, or the one on which it lies."""
    CUBIC = "cubic"
    """From one more on either side."""


class Coordinates(StrEnum):
    """Where rows, and columns, of an interpolation lie among those that are read."""

    HALF_PIXEL = "half-pixel"
    """Row r of b, read from a: at (r + 1/2) * a / b - 1/2."""
    PYTORCH_HALF_PIXEL = "pytorch-half-pixel"
    """At (r + 1/2) * a / b - 1/2, but at 0 where there is only one."""
    ALIGN_CORNERS = "align-corners"
    """At r * (a - 1) / (b - 1): the first on the first, the last on the last."""
    ASYMMETRIC = "asymmetric"
    """At r * a / b."""


class Objective(StrEnum):
    """What a plan should minimise."""

    CYCLES = "cycles"
    """Cycles of the whole network: the sum over its groups."""


class Slicing(StrEnum):
    """In which ways a group may be cut into slices."""

    N_THEN_H = "n-then-h"
    """Along N; along H only where N is cut down to one."""
    FREE = "free"
    """Along N, C, H and W, in any combination."""


class Standalone(StrEnum):
    """Which operators may run by themselves, from and to global memory."""

    ANY = "any"
    """All: libraries have kernels that tile a single operator."""
    NEEDED = "needed"
    """Only those of which no part can be made in local memory."""


class Timesteps(StrEnum):
    """When a group's tensors are loaded and stored."""

    NEAREST = "nearest"
    """By the rule: loaded in the row before they are read, stored in the row after."""
    FREE = "free"
    """In any row; tensors may leave for a while, too."""


class Order(StrEnum):
    """Which operators may be a group."""

    GIVEN = "given"
    """Those that follow one another in the order of the network."""
    FREE = "free"
    """Any, as long as groups can run one after the other; within a group they keep the order."""


WORDS = (
    Parameter("chip", str, "a chip of the catalog", choices=CHIP_NAMES, ending=".json"),
    Parameter("rates", str, "what a lane does in a cycle by kind, as conv:128,pool:8"),
    Parameter("operators", int, "number of operators", 1, 2**16),
    Parameter("channels", int, "channels of every tensor", 1, 2**20),
    Parameter("rows", int, "rows and columns of every tensor", 1, 2**16),
    Parameter("slicing", str, "how groups are cut", choices=tuple(Slicing)),
    Parameter("standalone", str, "who may run from global memory", choices=tuple(Standalone)),
    Parameter("timesteps", str, "when loads and stores are", choices=tuple(Timesteps)),
    Parameter("order", str, "whether groups keep to the order given", choices=tuple(Order)),
    Parameter(
        "capacity",
        int,
        "bytes of local memory in every lane of the chip",
        1,
        2**40,
        unit="bytes",
        option="instance",
    ),
    Parameter("max_slices", int, "slices of a group at most", 1, 2**16),
    Parameter("max_group", int, "operators of a group at most", 1, 2**16),
    Parameter(
        "overlap_limit",
        float,
        "part of the rows that slices may read again (none: any)",
        0,
        2**31,
        choices=("half", "none"),
    ),
)

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
