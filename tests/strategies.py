"""Random instances with every feature, and what is certainly true of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st

from stagepack.contracts import Number
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution, Variable
from stagepack.instances.profile import Cluster, Device, Link
from tests.random_pipelines import OBJECTIVES

Draw = Any


def links() -> st.SearchStrategy[Link]:
    return st.builds(
        Link,
        GBps=st.sampled_from([0.5, 1.0, 1.3, 2, 3]),
        idle=st.integers(0, 5),
    )


@st.composite
def clusters(draw: Draw, /, devices: int, *, alike: bool | None = None) -> Cluster:
    device = st.builds(
        Device,
        memory=st.one_of(st.none(), st.integers(5, 90)),
        speed=st.sampled_from([1, 1, 1.5, 2, 0.7]),
        recv=st.one_of(st.none(), links()),
        send=st.one_of(st.none(), links()),
    )
    if draw(st.booleans()) if alike is None else alike:
        found = (draw(device),) * devices
    else:
        found = tuple(draw(device) for _ in range(devices))
    # A clock of 2**30 makes 1 GB/s one byte a cycle.
    return Cluster(devices=found, clock=2**30, host_recv=draw(links()), host_send=draw(links()))


def figures(n: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), min_size=n, max_size=n)


@st.composite
def pipelines(
    draw: Draw, /, *, most_layers: int = 7, most_devices: int = 3, tables: bool = True, **fixed: Any
) -> PipelinePartition:
    n = draw(st.integers(1, most_layers))
    fewer = fixed.pop("fewer_stages", None)
    fewer = draw(st.booleans()) if fewer is None else fewer
    k = draw(st.integers(1, most_devices if fewer else min(n, most_devices)))
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    options: dict[str, Any] = {
        "cluster": draw(clusters(k)),
        "backward": draw(figures(n, 9)),
        "exclusive": {"code": draw(figures(n, 9)), "state": draw(figures(n, 5))},
        "temporary": draw(figures(n, 9)),
        "carry": draw(figures(n, 5)),
        "stash": draw(figures(n, 4)),
        "in_bytes": draw(figures(n + 1, 20)),
        "out_bytes": draw(figures(n + 1, 20)),
        "training": draw(st.booleans()),
        "microbatches": draw(st.sampled_from([None, 1, 2, 3, 4])),
        "backward_transfers": draw(st.sampled_from([None, False, True])),
        "objective": draw(st.sampled_from(OBJECTIVES)),
        "host_transfer": draw(st.booleans()),
        "fewer_stages": fewer,
        "free_order": draw(st.booleans()),
        "shared": {
            f"key {i}": (nbytes, draw(st.lists(st.integers(0, n - 1), max_size=4)))
            for i, nbytes in enumerate(draw(st.lists(st.integers(0, 20), max_size=2)))
        },
    }
    if draw(st.integers(0, 2)) == 0:
        first = draw(st.integers(0, n - 1))
        last = draw(st.integers(first, min(n - 1, first + 2)))
        options["variables"] = [Variable("w", first, last)]
    if n > 1 and draw(st.integers(0, 3)) == 0:
        options["forbidden_cuts"] = [draw(st.integers(1, n - 1))]
    if n > 1 and draw(st.integers(0, 4)) == 0:
        options["fixed_cuts"] = [draw(st.integers(1, n - 1))]
    if tables:
        which = draw(st.integers(0, 9))
        if which == 0:
            options["compute_table"] = rng.integers(0, 40, (n + 1, n + 1))
        elif which == 1:
            options["memory_table"] = rng.integers(0, 60, (k, n + 1, n + 1))
        elif which == 2:
            options["recv_cycles"] = rng.integers(0, 9, (k, n + 1))
            options["send_cycles"] = rng.integers(0, 9, (k, n + 1))
    forward: Any = draw(figures(n, 20))
    if draw(st.integers(0, 5)) == 0:
        forward = np.array(forward) + rng.random(n)
    return PipelinePartition.from_arrays(forward, **{**options, **fixed})


def partitions(instance: PipelinePartition) -> list[PipelineSolution]:
    """Every way to cut the chain and place the stages, valid or not."""
    n, k = instance.n, instance.k
    return [
        PipelineSolution((0, *cuts, n), devices)
        for stages in range(1, min(n, k) + 1)
        for cuts in itertools.combinations(range(1, n), stages - 1)
        for devices in itertools.permutations(range(k), stages)
    ]


def brute_force(instance: PipelinePartition) -> Number | None:
    """The least value of all valid partitions, by trying them all; None: there is none."""
    values = [instance.evaluate(s) for s in partitions(instance) if not instance.check(s)]
    return min(values, default=None)
