"""A dynamic program over matrices, plain enough to be believed: the optimum for these tests."""

from __future__ import annotations

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import Objective, PipelinePartition
from stagepack.instances.pipeline.check import (
    host_cycles,
    recv_cycles,
    send_cycles,
    stage_compute,
    stage_headroom,
    stage_memory,
)
from stagepack.instances.profile import Array

INF = float("inf")


def matrices(instance: PipelinePartition) -> tuple[Array, Array, Array]:
    """Return compute, transfer and largest single term, (k, n + 1, n + 1); inf: not a stage."""
    n, k = instance.n, instance.k
    compute, transfer, largest = np.full((3, k, n + 1, n + 1), INF)
    allowed = np.flatnonzero(instance.allowed_cuts).tolist()
    host = host_cycles(instance)
    for device in range(k):
        capacity = instance.cluster.devices[device].memory
        for a in allowed:
            recv = recv_cycles(instance, device, a) if a else 0
            for b in allowed:
                if b <= a:
                    continue
                need = stage_memory(instance, a, b, device, k - device)
                if capacity is not None and need > capacity:
                    break
                send = send_cycles(instance, device, b) if b < n else 0
                cycles = stage_compute(instance, a, b, device)
                compute[device, a, b] = float(cycles)
                transfer[device, a, b] = recv + send + host
                largest[device, a, b] = max(float(cycles), recv, send)
    return compute, transfer, largest


def bottleneck(cost: Array, joined: np.ufunc = np.maximum) -> float:
    """Return the least largest cost of a partition that uses every device in order.

    With ``np.add``, the least cost of all stages.
    """
    best = cost[0, 0]
    for device in range(1, len(cost)):
        best = joined(best[:, None], cost[device]).min(axis=0)
    return float(best[-1])


def pareto(instance: PipelinePartition) -> list[tuple[float, float]]:
    """Return the non-dominated pairs (largest compute, largest transfer), by rising transfer."""
    compute, transfer, _ = matrices(instance)
    pairs: list[tuple[float, float]] = []
    floor = bottleneck(np.where(np.isfinite(compute), transfer, INF))
    values = np.unique(transfer[np.isfinite(transfer)])
    for threshold in values[values >= floor]:
        value = bottleneck(np.where(transfer <= threshold, compute, INF))
        if value < (pairs[-1][0] if pairs else INF):
            pairs.append((value, float(threshold)))
    return pairs


def optimum(instance: PipelinePartition) -> Number | None:
    """Return the optimal value of an instance in a fixed order of devices, None if infeasible."""
    assert not instance.free_order
    assert not instance.fewer_stages
    assert not instance.fixed_cuts
    compute, transfer, largest = matrices(instance)
    if instance.objective is Objective.TRANSFER_BOUNDED:
        value = min((c + t for c, t in _staircase(compute, transfer)), default=INF)
    elif instance.objective is Objective.BOTTLENECK:
        value = bottleneck(compute)
    elif instance.objective is Objective.LATENCY:
        host = host_cycles(instance)  # once, and not with every stage
        value = bottleneck(compute + transfer - host, np.add) + host
    elif instance.objective is Objective.HEADROOM:
        lacking = np.full(compute.shape, INF)
        for device, a, b in np.argwhere(np.isfinite(compute)).tolist():
            lacking[device, a, b] = -stage_headroom(instance, a, b, device)
        value = bottleneck(lacking)
    else:
        value = bottleneck(
            largest if instance.objective is Objective.OVERLAP else compute + transfer
        )
    if value == INF:
        return None
    return int(value) if value == int(value) else value


def _staircase(compute: Array, transfer: Array) -> list[tuple[float, float]]:
    """Return the steps with the largest transfer first, each threshold just below the last."""
    steps = []
    limit = INF
    while (value := bottleneck(np.where(transfer < limit, compute, INF))) < INF:
        within = np.where((compute <= value) & (transfer < limit), transfer, INF)
        limit = bottleneck(within)
        steps.append((value, limit))
    return steps
