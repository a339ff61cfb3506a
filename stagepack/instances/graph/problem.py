"""Graph partitioning: kind, objectives, words, and what is registered as `PROBLEM`."""

from __future__ import annotations

from enum import StrEnum

from stagepack.instances.problem import Export, Problem
from stagepack.instances.words import CAPACITIES, Parameter

KIND = "graph-partition"


class Objective(StrEnum):
    """What to minimise; the load of a device is the time that it needs for one sample."""

    SUM = "sum"
    """The largest load, where a device computes or communicates: time + received + sent."""
    OVERLAP = "overlap"
    """The largest load, where it does all at once: the largest of time, received and sent."""
    REPLICATED = "replicated"
    """As `overlap`, and a stage may run on several devices, which share samples (PipeDream)."""
    FORWARD_BACKWARD = "forward+backward"
    """The largest load of the forward pass plus that of the backward pass, each as in `sum`."""
    MEMORY = "memory"
    """The most bytes that a device holds."""
    LATENCY = "latency"
    """The time of one sample: an accelerator does its nodes in one go, in the time of its load,
    once all that they read is there; a CPU does each node by itself, any number at once."""


class DeviceOrder(StrEnum):
    """Which device holds which stage."""

    ANY = "any"
    """Stages run on the devices in any order."""
    FIXED = "fixed"
    """Device d holds the d-th stage."""


WORDS = (
    Parameter(
        "bandwidth",
        float,
        "traffic of every link in a unit of time; of profiles, as of chains: 10GB/s, 10GiB/s",
        1e-18,
        1e18,
    ),
    Parameter(
        "levels",
        list,
        "links in levels instead, from the innermost: devices of a group, bandwidth among them, "
        "groups of the next one, ...: 4,100,2,10",
        1e-18,
        1e18,
    ),
    Parameter("cpus", int, "number of CPUs beside the accelerators", 0, 2**20),
    Parameter(
        "device_order",
        str,
        "which device holds which stage",
        choices=tuple(DeviceOrder),
    ),
    Parameter("operators", int, "number of operators", 1, 2**22),
    Parameter("width", int, "operators of a layer", 1, 2**16),
    Parameter("empty_devices", bool, "devices may stay without operators"),
    Parameter("contiguous", bool, "stages follow one another: none both before and after another"),
)

PROBLEM = Problem(
    kind=KIND,
    instance="GraphPartition",
    objectives=tuple(Objective),
    solution_fields=("assignment",),
    needs_instance=True,
    words=(*WORDS, CAPACITIES),
    frees=True,
    export=Export(".dot", texts={".dot": "partition_dot", ".graphml": "partition_graphml"}),
    becomes={
        "pipeline-partition": "chain",
        "pipeline-schedule": "PipelineSchedule.from_graph",
    },
    public={
        "GraphPartition": "",
        "GraphSolution": "",
        "chain": "chains.chain",
        "partition_dot": "viewers",
        "partition_graphml": "viewers",
    },
)
