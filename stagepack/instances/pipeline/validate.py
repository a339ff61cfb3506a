"""What makes a chain, and the placement of its stages, one that can be cut."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from stagepack.errors import InputError
from stagepack.instances import arrays
from stagepack.instances.pipeline.data import PER, PartitionData
from stagepack.instances.pipeline.problem import LIMITABLE, TIED, Objective
from stagepack.instances.words import LARGEST
from stagepack.shown import some

WORDS_OF_PLACEMENT = ("loop", "v")
MOST_ROUNDS = 2**10
"""Stages of a device."""


def require(given: PartitionData) -> None:
    """Refuse an instance whose fields do not fit one another, or whose sums could overflow."""
    n, k = given.n, given.k
    if not 1 <= given.microbatches < 2**31:
        raise InputError(
            f"{given.microbatches} microbatches",
            field="microbatches",
            remedy="give at least one and fewer than 2**31",
        )
    _sums(given)
    _cache(given)
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
    if given.placed:
        _require_sums(given)
    for name in ("tied", "shared"):
        held = getattr(given, name)
        if held is None:
            continue
        if len(held.layer) and (held.layer.min() < 0 or held.layer.max() >= n):
            raise InputError(
                f"names a layer outside 0..{n - 1}", field=name, remedy="count layers from 0"
            )
        if len(held.nbytes) and held.nbytes.min() < 0:
            raise InputError("negative bytes", field=name, remedy="give bytes >= 0")
    _moves(given)
    if given.alternatives:
        _alternatives(given)
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
    every: list[Any] = [given, *given.alternatives.values()]
    cycles = sum(
        float(np.sum(column, dtype=np.float64))
        for one in every
        for column in (one.forward, one.backward)
    )
    if cycles >= LARGEST:
        raise InputError(
            "the sum of all cycles exceeds 2**62", field="forward", remedy="use a coarser unit"
        )
    columns = [*given.exclusive.values(), given.temporary, given.carry, given.stash]
    columns += [given.in_bytes, given.out_bytes, given.shared.nbytes]
    cached = [given.cached_bytes(1)]
    for one in given.alternatives.values():
        columns += [*one.exclusive.values(), one.temporary, one.stash]
        cached.append(one.kv_bytes)
    held, tokens = (
        sum(float(np.sum(column, dtype=np.float64)) for column in every)
        for every in (columns, cached)
    )
    flying = given.microbatches if given.training else 1
    if held * flying + tokens * given.tokens >= LARGEST:
        raise InputError(
            "the sum of all bytes exceeds 2**62", field="exclusive", remedy="use a coarser unit"
        )


def _cache(given: PartitionData) -> None:
    """Refuse tokens without bytes, and the objective `headroom` where nothing limits it."""
    counted, wanted = bool(given.cached_bytes(1).any()), given.objective is Objective.HEADROOM
    if (given.tokens or wanted) and not counted:
        raise InputError(
            "no layer says what a token takes of its KV cache",
            field="kv_bytes",
            remedy="give the bytes of a token in every layer, or in each",
        )
    if not wanted:
        return
    memory = [device.memory for device in given.cluster.devices]
    if None in memory or sum(filter(None, memory)) >= LARGEST:
        raise InputError(
            "headroom is what is left of the memory of devices, and some have no limit",
            field="capacity",
            remedy="give the bytes of every device",
        )
    if given.training:
        raise InputError(
            "headroom for a KV cache is a question of inference",
            field="training",
            remedy="leave out training, or choose another objective",
        )


def require_tied(tied: object, variables: bool = False) -> None:
    """Refuse what is no way to treat tied weights, and copies of `variables`, without bytes."""
    if tied not in TIED:
        raise InputError(
            f"{tied!r} is none of the ways", field="tied", remedy=f"give {' or '.join(TIED)}"
        )
    if tied == "copied" and variables:
        raise InputError(
            "say no bytes, so that stages cannot hold copies of them",
            field="variables",
            remedy="name these weights, with their bytes, in `tied`",
        )


def _moves(given: PartitionData) -> None:
    """Refuse a previous cut of other layers or devices, and moves that nothing counts from."""
    held, n, k = given.previous, given.n, given.k
    if held is not None and (len(held) != n or min(held) < -1 or max(held) >= k):
        raise InputError(
            f"says {len(held):,} devices, {min(held, default=0)} to {max(held, default=0)}, for "
            f"{n:,} layers on devices 0 to {k - 1}",
            field="previous",
            remedy="give the device that holds each layer, -1 for none",
        )
    limit = given.limit
    if limit is not None and (
        isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < LARGEST
    ):
        raise InputError(f"{limit!r}", field="limit", remedy="give a number >= 0")
    if given.objective is not Objective.MOVES:
        return
    if held is None:
        raise InputError(
            "moves are counted from a previous cut, and there is none",
            field="previous",
            remedy="give the device that holds each layer (from_previous, --previous)",
        )
    if not any(column.any() for column in given.exclusive.values()):
        raise InputError(
            "no layer says its bytes, so that nothing would count as moved",
            field="exclusive",
            remedy="give the bytes of each layer",
        )
    if given.limited not in LIMITABLE and limit is not None:
        raise InputError(
            f"moves within a limit on {given.limited} are not known",
            field="limited",
            remedy=f"choose {', '.join(LIMITABLE)}; of headroom give tokens",
        )


def _require_sums(given: PartitionData) -> None:
    """Refuse what is not said, or not known, of devices that run several stages."""
    remedy = "leave it out, or run one stage on each device (stages_per_device, placement)"
    for name in ("compute_table", "memory_table", "recv_cycles", "send_cycles"):
        if getattr(given, name) is not None:
            raise InputError("says nothing of several stages", field=name, remedy=remedy)
    if given.tokens:
        raise InputError("counts one stage a device", field="tokens", remedy=remedy)
    if given.free_order:
        raise InputError("contradicts the placement", field="free_order", remedy=remedy)
    if given.objective is not Objective.BOTTLENECK:
        raise InputError(
            f"{given.objective} is not known of devices with several stages",
            field="objective",
            remedy=f"choose {Objective.BOTTLENECK}",
        )


def _alternatives(given: PartitionData) -> None:
    """Refuse what layers with alternatives do not know."""
    if given.alternatives_per not in PER:
        raise InputError(
            f"{given.alternatives_per[:40]!r} takes none",
            field="alternatives_per",
            remedy=f"choose {' or '.join(PER)}",
        )
    if given.own_alternative in ("", *given.alternatives):
        raise InputError(
            f"{given.own_alternative!r} is no name for the layers' own figures",
            field="own_alternative",
            remedy="give one that no alternative has",
        )
    if given.placed:
        raise InputError(
            "are known of one stage a device",
            field="alternatives",
            remedy="leave out stages_per_device and placement, or the alternatives",
        )
    if given.objective is Objective.HEADROOM:
        raise InputError(
            "headroom counts the layers' own bytes",
            field="alternatives",
            remedy="leave them out, or minimise latency with room for --tokens",
        )
    if given.objective is Objective.MOVES:
        raise InputError(
            "moves count the layers' own bytes", field="alternatives", remedy="leave them out"
        )
    if given.reduces:
        raise InputError(
            "are not known where gradients of tied weights are reduced",
            field="alternatives",
            remedy="keep these together (--tied together), or minimise the bottleneck",
        )
    for name in ("compute_table", "memory_table"):
        if getattr(given, name) is not None:
            raise InputError(
                "replaces the figures of layers, so that they have no alternatives",
                field=name,
                remedy="leave out the table, or the alternatives",
            )


def _cluster(given: PartitionData) -> None:
    cluster, n, k = given.cluster, given.n, given.k
    if not k:
        raise InputError("has no devices", field="cluster", remedy="give at least one")
    if len(given.stage_devices) > n and not given.fewer_stages:
        what = f"{len(given.stage_devices):,} stages on {k:,}" if given.placed else f"{k:,}"
        raise InputError(
            f"{what} devices for {n:,} {'layer' if n == 1 else 'layers'}",
            field="stages_per_device" if given.placed else "devices",
            remedy="use at most one stage a layer, or allow fewer stages",
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


def placement_of(
    each: int, placement: str | Iterable[int], k: int
) -> tuple[int, str | tuple[int, ...]]:
    """Return stages a device and their placement, both as they are where a device has one stage.

    `each` and `placement` are as given for `k` devices.
    """
    each = arrays.integer(each, "stages_per_device")
    if not 1 <= each <= MOST_ROUNDS:
        raise InputError(
            f"{each} stages", field="stages_per_device", remedy=f"give 1 to {MOST_ROUNDS}"
        )
    if isinstance(placement, str) and placement in WORDS_OF_PLACEMENT:
        return each, placement if each > 1 else "loop"
    remedy = f"give {' or '.join(WORDS_OF_PLACEMENT)}, or the device of each stage: 0,1,1,0"
    items = placement.split(",") if isinstance(placement, str) else placement
    try:
        table = tuple(int(item) for item in items)
    except (TypeError, ValueError):
        table = ()
    if not table:
        raise InputError(f"{str(placement)[:40]!r} is none", field="placement", remedy=remedy)
    if each > 1:
        raise InputError(
            f"names the devices of all stages, beside {each} stages a device",
            field="placement",
            remedy="say 1 of stages_per_device (--stages-per-device 1), or loop or v here",
        )
    missing = next((device for device in range(k) if device not in set(table)), None)
    if missing is not None or max(table) >= k or min(table) < 0:
        what = f"device {missing} has no stage" if missing is not None else f"outside 0..{k - 1}"
        raise InputError(
            f"{some(table)}: {what}",
            field="placement",
            remedy=f"name each of the {k} devices at least once, and no others",
        )
    return 1, "loop" if table == tuple(range(k)) else table
