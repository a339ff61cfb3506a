"""Relations between chains of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Device, Link
from tests.random_pipelines import asked, random_instance
from tests.relations.relation import NO_WORSE, SAME, Relation, at_most, scaled

TABLES = ("recv_cycles", "send_cycles")


def instance(seed: int) -> PipelinePartition:
    """Return a chain of a few layers; every third is of equal ones on devices that are alike.

    Every fourth has a KV cache, and is asked for latency or headroom.
    """
    if seed % 4 == 3:
        return asked(random_instance(seed), "latency" if seed % 8 == 3 else "headroom", seed)
    if seed % 3:
        return random_instance(seed)
    draw = np.random.default_rng(seed)
    n, k = int(draw.integers(2, 9)), int(draw.integers(1, 5))
    each, nbytes = draw.integers(1, 20, 2).tolist()
    return PipelinePartition.from_arrays(
        [each] * n,
        devices=k,
        exclusive=[nbytes] * n,
        capacity=nbytes * int(draw.integers(1, n + 1)),
        in_bytes=[int(draw.integers(1, 9))] * (n + 1),
        fewer_stages=k > n or bool(draw.integers(2)),
        objective=str(draw.choice(["bottleneck", "transfer-bounded", "sum", "overlap"])),
    )


def with_devices(given: PipelinePartition, change: Callable[[Device], Device]) -> PipelinePartition:
    """Return a chain on changed devices."""
    devices = tuple(map(change, given.cluster.devices))
    return given.replace(cluster=msgspec.structs.replace(given.cluster, devices=devices))


def larger(given: PipelinePartition) -> PipelinePartition:
    return with_devices(
        given,
        lambda one: msgspec.structs.replace(
            one, memory=None if one.memory is None else 2 * one.memory
        ),
    )


def unlimited(given: PipelinePartition) -> PipelinePartition | None:
    if str(given.objective) == "headroom":
        return None
    return with_devices(given, lambda one: msgspec.structs.replace(one, memory=None))


def faster(given: PipelinePartition) -> PipelinePartition:
    return with_devices(given, lambda one: msgspec.structs.replace(one, speed=2 * one.speed))


def linked(given: PipelinePartition) -> PipelinePartition:
    """Return a chain whose links are twice as fast."""

    def better(link: Link | None) -> Link | None:
        return None if link is None else Link(GBps=2 * link.GBps, idle=link.idle // 2)

    changed = with_devices(
        given,
        lambda one: msgspec.structs.replace(one, recv=better(one.recv), send=better(one.send)),
    )
    tables = {name: getattr(given, name) for name in TABLES if getattr(given, name) is not None}
    halved = {
        name: table // 2 if table.dtype.kind == "i" else table / 2 for name, table in tables.items()
    }
    return changed.replace(**halved)


def fewer(given: PipelinePartition) -> PipelinePartition:
    return given.replace(fewer_stages=True)


def any_order(given: PipelinePartition) -> PipelinePartition:
    return given.replace(free_order=True)


def one_more(given: PipelinePartition) -> PipelinePartition:
    """Return a chain with another device like the last one, which may stay unused."""
    devices = given.cluster.devices
    tables = {
        name: np.concatenate((table, table[-1:]))
        for name in (*TABLES, "compute_table", "memory_table")
        if (table := getattr(given, name)) is not None and (name in TABLES or table.ndim == 3)
    }
    cluster = msgspec.structs.replace(given.cluster, devices=(*devices, devices[-1]))
    return given.replace(cluster=cluster, fewer_stages=True, **tables)


def in_another_order(given: PipelinePartition) -> PipelinePartition | None:
    """Return a chain on devices in any order that are listed in another one."""
    if not given.free_order or (given.host_transfer and given.recv_cycles is not None):
        return None
    order = np.roll(np.arange(given.k), 1)
    tables = {
        name: table[order]
        for name in (*TABLES, "compute_table", "memory_table")
        if (table := getattr(given, name)) is not None and (name in TABLES or table.ndim == 3)
    }
    devices = tuple(given.cluster.devices[at] for at in order)
    return given.replace(cluster=msgspec.structs.replace(given.cluster, devices=devices), **tables)


def reversed_(given: PipelinePartition) -> PipelinePartition | None:
    """Return a chain that is read from its end: what was received is sent."""
    if given.training or given.variables or len(given.shared.layer):
        return None
    n, cluster = given.n, given.cluster
    devices = [
        msgspec.structs.replace(one, recv=one.send, send=one.recv) for one in cluster.devices[::-1]
    ]
    changes: dict[str, Any] = {
        name: getattr(given, name)[::-1] for name in ("forward", "backward", "temporary", "carry")
    }
    for name in ("compute_table", "memory_table"):
        table = getattr(given, name)
        if table is not None:
            changes[name] = table.swapaxes(-1, -2)[..., ::-1, ::-1][:: -1 if table.ndim == 3 else 1]
    for name, other in (TABLES, TABLES[::-1]):
        table = getattr(given, other)
        changes[name] = None if table is None else table[::-1, ::-1]
    return given.replace(
        **changes,
        exclusive={name: column[::-1] for name, column in given.exclusive.items()},
        kv_bytes=given.cached_bytes(1)[::-1],
        in_bytes=given.out_bytes[::-1],
        out_bytes=given.in_bytes[::-1],
        forbidden_cuts=[n - cut for cut in given.forbidden_cuts],
        fixed_cuts=[n - cut for cut in given.fixed_cuts],
        cluster=msgspec.structs.replace(
            cluster,
            devices=tuple(devices),
            host_recv=cluster.host_send,
            host_send=cluster.host_recv,
        ),
    )


def slower(given: PipelinePartition) -> PipelinePartition | None:
    """Return a chain all of whose times are three times as long."""
    tables = {name: getattr(given, name) for name in (*TABLES, "compute_table")}
    links = [one for device in given.cluster.devices for one in (device.recv, device.send)]
    links += [given.cluster.host_recv, given.cluster.host_send]
    timed = any(link is not None for link in links) and tables["recv_cycles"] is None
    if (str(given.objective) != "bottleneck" and timed) or str(given.objective) == "headroom":
        return None
    times = {name: 3 * table for name, table in tables.items() if table is not None}
    return given.replace(forward=3 * given.forward, backward=3 * given.backward, **times)


def heavier(given: PipelinePartition) -> PipelinePartition:
    """Return a chain with five times as many bytes on devices five times as large."""
    table = given.memory_table
    changed = given.replace(
        exclusive={name: 5 * column for name, column in given.exclusive.items()},
        kv_bytes=given.cached_bytes(5),
        shared=_shared(given, 5, 1),
        temporary=5 * given.temporary,
        carry=5 * given.carry,
        stash=5 * given.stash,
        memory_table=None if table is None else 5 * table,
    )
    return with_devices(
        changed,
        lambda one: msgspec.structs.replace(
            one, memory=None if one.memory is None else 5 * one.memory
        ),
    )


def halved(given: PipelinePartition) -> PipelinePartition | None:
    """Return a chain with two layers, between which no cut may be, for each."""
    names = ("recv_cycles", "send_cycles", "compute_table", "memory_table")
    if any(getattr(given, name) is not None for name in names):
        return None

    def parts(column: Any) -> Any:
        half = column // 2 if column.dtype.kind == "i" else column / 2
        return np.column_stack((half, column - half)).ravel()

    cuts = np.repeat(np.arange(given.n + 1), 2)[:-1]
    odd = range(1, 2 * given.n, 2)
    return given.replace(
        forward=parts(given.forward),
        backward=parts(given.backward),
        exclusive={name: parts(column) for name, column in given.exclusive.items()},
        kv_bytes=parts(given.cached_bytes(1)),
        shared=_shared(given, 1, 2),
        temporary=np.repeat(given.temporary, 2),
        carry=np.repeat(given.carry, 2),
        stash=parts(given.stash),
        in_bytes=given.in_bytes[cuts],
        out_bytes=given.out_bytes[cuts],
        variables=[(one.name, 2 * one.first, 2 * one.last + 1) for one in given.variables],
        forbidden_cuts=sorted({*odd, *(2 * cut for cut in given.forbidden_cuts)}),
        fixed_cuts=[2 * cut for cut in given.fixed_cuts],
        layer_names=None,
    )


def _shared(given: PipelinePartition, times: int, parts: int) -> dict[str, Any]:
    """Return shared keys of so many times as many bytes, where layers are in so many parts."""
    uses: dict[int, list[int]] = {}
    for layer, key in zip(given.shared.layer.tolist(), given.shared.key.tolist(), strict=True):
        uses.setdefault(key, []).extend(parts * layer + part for part in range(parts))
    return {f"k{key}": (times * int(given.shared.nbytes[key]), at) for key, at in uses.items()}


def twice(given: PipelinePartition) -> PipelinePartition | None:
    """Return a chain twice in a row, on as many devices again."""
    plain = str(given.objective) == "bottleneck" and not given.training and not given.tokens
    plain &= not given.variables and given.compute_table is None and given.memory_table is None
    if not plain or given.recv_cycles is not None or len(given.shared.layer):
        return None
    n, devices = given.n, given.cluster.devices
    columns = ("forward", "backward", "temporary", "carry", "stash")
    return given.replace(
        **{name: np.tile(getattr(given, name), 2) for name in columns},
        exclusive={name: np.tile(column, 2) for name, column in given.exclusive.items()},
        in_bytes=np.zeros(2 * n + 1, dtype=np.int64),
        out_bytes=np.zeros(2 * n + 1, dtype=np.int64),
        fixed_cuts=[*given.fixed_cuts, n, *(n + cut for cut in given.fixed_cuts)],
        forbidden_cuts=[*given.forbidden_cuts, *(n + cut for cut in given.forbidden_cuts)],
        cluster=msgspec.structs.replace(given.cluster, devices=(*devices, *devices)),
        layer_names=None,
    )


def untaken(given: PipelinePartition) -> PipelinePartition | None:
    """Return a chain that need not hold tokens."""
    return given.replace(tokens=0) if given.tokens else None


def anywhere(given: PipelinePartition) -> PipelinePartition:
    return given.replace(forbidden_cuts=(), fixed_cuts=(), variables=())


RELATIONS = (
    Relation("more memory", larger, NO_WORSE),
    Relation("no limit of memory", unlimited, NO_WORSE),
    Relation("fewer stages", fewer, NO_WORSE),
    Relation("free order", any_order, NO_WORSE),
    Relation("one device more", one_more, NO_WORSE),
    Relation("no tokens to hold", untaken, NO_WORSE),
    Relation("cuts anywhere", anywhere, NO_WORSE),
    Relation("faster devices", faster, NO_WORSE),
    Relation("faster links", linked, NO_WORSE),
    Relation("no host", lambda given: given.replace(host_transfer=False), NO_WORSE),
    Relation("one microbatch", lambda given: given.replace(microbatches=1), NO_WORSE),
    Relation("devices in another order", in_another_order, SAME),
    Relation("reversed", reversed_, SAME),
    Relation("three times as slow", slower, scaled(3)),
    Relation("five times the bytes", heavier, SAME),
    Relation("every layer in two", halved, SAME),
    Relation("twice in a row", twice, at_most(1)),
)
