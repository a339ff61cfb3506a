"""Whether the fields of a pipeline partition fit one another."""

from __future__ import annotations

import math

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.pipeline.data import PartitionData
from stagepack.instances.words import LARGEST


def instance(given: PartitionData) -> None:
    """Refuse an instance whose fields do not fit one another, or whose sums could overflow.

    Raises
    ------
    InputError
        Naming the field.
    """
    n, k = given.n, given.k
    if not 1 <= given.microbatches < 2**31:
        raise InputError(
            f"{given.microbatches} microbatches",
            field="microbatches",
            remedy="give at least one and fewer than 2**31",
        )
    _sums(given)
    if given.layer_names is not None and len(given.layer_names) != n:
        raise InputError(
            f"{len(given.layer_names):,} names for {n:,} layers",
            field="layer_names",
            remedy="give one name a layer",
        )
    for name in ("recv_cycles", "send_cycles", "compute_table", "memory_table"):
        table = getattr(given, name)
        shapes = ((k, n + 1),) if "cycles" in name else ((n + 1, n + 1), (k, n + 1, n + 1))
        if table is not None and table.shape not in shapes:
            raise InputError(
                f"has shape {table.shape}",
                field=name,
                remedy=f"for {k} devices give {' or '.join(map(str, shapes))}",
            )
    _cluster(given)
    uses = given.shared.layer
    if len(uses) and (uses.min() < 0 or uses.max() >= n):
        raise InputError(
            f"names a layer outside 0..{n - 1}", field="shared", remedy="count layers from 0"
        )
    if len(given.shared.nbytes) and given.shared.nbytes.min() < 0:
        raise InputError("negative bytes", field="shared", remedy="give bytes >= 0")
    for variable in given.variables:
        if not 0 <= variable.first <= variable.last < n:
            raise InputError(
                f"variable {variable.name!r} spans layers {variable.first}..{variable.last} "
                f"of 0..{n - 1}",
                field="variables",
                remedy="give 0 <= first <= last < n",
            )
    for name in ("forbidden_cuts", "fixed_cuts"):
        for cut in getattr(given, name):
            if not 0 < cut < n:
                raise InputError(
                    f"cut {cut:,} is not between two of the {n:,} layers",
                    field=name,
                    remedy=f"cuts run from 1 to {n - 1}; cut c lies before layer c",
                )


def _sums(given: PartitionData) -> None:
    """Refuse figures whose sums could overflow."""
    cycles = sum(
        float(np.sum(column, dtype=np.float64)) for column in (given.forward, given.backward)
    )
    if cycles >= LARGEST:
        raise InputError(
            "the sum of all cycles exceeds 2**62", field="forward", remedy="use a coarser unit"
        )
    columns = [*given.exclusive.values(), given.temporary, given.carry, given.stash]
    columns += [given.in_bytes, given.out_bytes, given.shared.nbytes]
    factor = max(1, given.microbatches if given.training else 1)
    if sum(float(np.sum(c, dtype=np.float64)) for c in columns) * factor >= LARGEST:
        raise InputError(
            "the sum of all bytes exceeds 2**62", field="exclusive", remedy="use a coarser unit"
        )


def _cluster(given: PartitionData) -> None:
    cluster, n, k = given.cluster, given.n, given.k
    if k > n and not given.fewer_stages:
        raise InputError(
            f"{k:,} devices for {n:,} {'layer' if n == 1 else 'layers'}",
            field="devices",
            remedy="use at most one device a layer, or allow fewer stages",
        )
    links = {cluster.host_recv, cluster.host_send}
    for index, device in enumerate(cluster.devices):
        where = f"cluster.devices[{index}]"
        memory, speed = device.memory, device.speed
        if memory is not None and (not isinstance(memory, int) or memory < 0):
            raise InputError(f"memory {memory}", field=where, remedy="give whole bytes >= 0")
        if not 1e-9 <= speed <= 1e9:
            raise InputError(f"speed {speed}", field=where, remedy="give a speed around 1")
        links |= {device.recv, device.send}
    for link in links - {None}:
        assert link is not None
        try:
            slowest = link.idle + 2.0**62 / (link.GBps * 2**30 / cluster.clock)
            usable = link.GBps > 0 and cluster.clock > 0 and link.idle >= 0
        except (OverflowError, ZeroDivisionError):
            slowest, usable = math.inf, False
        if not usable or not math.isfinite(slowest):
            raise InputError(
                f"{link.GBps} GiB/s after {link.idle} cycles at {cluster.clock} Hz: out of range",
                field="cluster",
                remedy="give realistic bandwidths, delays and a clock",
            )
