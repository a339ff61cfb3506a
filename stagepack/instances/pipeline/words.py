"""Words of pipeline partitions: their kind, their objectives, what may be said of them."""

from __future__ import annotations

from enum import StrEnum

from stagepack.instances.words import Parameter

KIND = "pipeline-partition"


class Objective(StrEnum):
    """Objectives of a partition; compute and transfer are in cycles."""

    BOTTLENECK = "bottleneck"
    """The largest compute."""
    TRANSFER_BOUNDED = "transfer-bounded"
    """The largest compute plus the largest transfer: devices exchange after all have computed."""
    SUM = "sum"
    """The largest sum of compute and transfer: each device exchanges when it is ready."""
    OVERLAP = "overlap"
    """The largest single term of compute, receive and send: transfers hide behind compute."""


MEMORY = ("exclusive", "shared", "temporary", "carry", "stash", "received")
"""The terms of a stage's memory; `received` counts in schedules and plans only."""

WORDS = (
    Parameter(
        "host_transfer",
        bool,
        "every device waits for the exchange with the host",
        option="machine",
    ),
    Parameter(
        "order",
        str,
        "which order of a graph makes the chain: the best of some dozens, or that of the file",
        choices=("best", "file"),
        option="instance",
    ),
    Parameter(
        "backward_transfers",
        bool,
        "count the gradients that come back over the links; by default in training",
        option="machine",
    ),
    Parameter(
        "memory",
        str,
        "terms of memory that count: exclusive (or its categories), shared, temporary, carry, "
        "stash, received (in schedules and plans), commas between; by default all",
        option="machine",
    ),
    Parameter("fewer_stages", bool, "devices may stay unused", option="freedom"),
    Parameter("free_order", bool, "stages may run on the devices in any order", option="freedom"),
)
