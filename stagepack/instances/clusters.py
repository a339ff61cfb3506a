"""Hardware presets: clusters by name, and how fast their devices work.

``ipu-podN`` carries the figures of the *Auto Pipeline* readme: 1.85 GHz, 894 MiB a device of
which 85 % may be planned with, 7 GB/s and 50,000 idle cycles on the links to the host, 70 GB/s
and 3,000 idle cycles between devices.  Arithmetic is that of the Bow IPU (Graphcore, *Bow-2000
datasheet*, 2022): 1472 tiles, each 64 half-precision multiply-accumulates a cycle.

``generic-N`` has round numbers and models no product: 1 GHz, 16 GiB, 32 GB/s and 1,000 idle
cycles on every link, 100,000 operations a cycle (100 TFLOP/s at the peak), and programs of up to
1 MiB, of small layers a sixteenth of what they work on.

GPUs and TPUs by name, as in ``4xh100`` and ``2x8xh100``, are those of :mod:`.accelerators`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from stagepack.errors import InputError
from stagepack.instances import accelerators
from stagepack.instances.cluster_info import ClusterInfo, Described, cluster_of
from stagepack.instances.documents import strict
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.instances.words import Words

MACHINE = frozenset({"devices", "cluster", "bandwidth", "capacity", "speed"})
"""Words that say on what a pipeline runs."""
IPU_TILES = 1472
LARGEST_GENERIC = 65_536
FILE = ".json"
"""How names end that are files of a cluster of one's own."""


@dataclass(frozen=True)
class Preset:
    """A cluster and what turns a network's arithmetic into its cycles and bytes.

    Of a device, `flops_per_cycle` is the peak of matrix products and convolutions (a
    multiply-accumulate is two), and `values_per_cycle` are values that pass through pointwise
    operations, lookups and normalisations.  `utilisation`, the share of both peaks that a compiled
    layer reaches, is an assumption, not a measurement.

    Estimates: `code_bytes` of the program that layers of one shape share on a device, and
    `state_bytes` (vertex descriptors, exchange tables) that every layer has alone.  Of the weights
    and tensors that it works on, a program takes one `code_part` at most; None: every program is on
    the whole device, however little there is to do.  `memory_bandwidth` is that of the device's own
    memory, bytes a cycle, where it is known.
    """

    cluster: Cluster
    flops_per_cycle: int
    values_per_cycle: int
    utilisation: float
    code_bytes: int
    code_part: int | None
    state_bytes: int
    description: str
    memory_bandwidth: float | None = None


def names() -> tuple[str, ...]:
    """Return the names of the presets; N in ``generic-N`` and ``Nxh100`` stands for any number."""
    pods = ("ipu-pod2", "ipu-pod4", "ipu-pod8", "ipu-pod16", "generic-N")
    return (*pods, *accelerators.names())


def preset(name: str) -> Preset:
    """Return the preset called `name`; of a file, its cluster with the arithmetic of ``generic-1``.

    An unknown name is refused with those that are known, a file with what is wrong in it.
    """
    found = _named(name)
    if found is None and name.endswith(accelerators.FILE):
        return replace(_generic(1), cluster=of_file(name), description=f"the cluster of {name}")
    if found is None:
        remedy = f"known are {', '.join(names())}, 2x8xh100 (two nodes), h100:4+a100-80:4, and a "
        raise InputError(
            f"unknown cluster {name!r}",
            field="cluster",
            remedy=f"{remedy}FILE{accelerators.FILE} of your own",
        )
    return found


@cache
def _named(name: str) -> Preset | None:
    """Return the preset called `name`; None where there is none."""
    found = re.fullmatch(r"(ipu-pod|generic-)([1-9][0-9]{0,5})", name)
    if found and found[1] == "ipu-pod" and int(found[2]) in (2, 4, 8, 16):
        return _ipu_pod(int(found[2]))
    if found and found[1] == "generic-" and int(found[2]) <= LARGEST_GENERIC:
        return _generic(int(found[2]))
    nodes = accelerators.nodes(name)
    return _accelerated(name, nodes) if nodes else None


def of_file(path: str) -> Cluster:
    """Return the cluster that a JSON file describes, by its own name or that of the file.

    Auto Pipeline's ``cluster_info`` is taken as it stands, or beside its ``config``.
    """
    held = strict.decode_file(path, dict, "cluster")
    if "cluster_info" in held:
        described = strict.decode_file(path, Described, "cluster")
        found = cluster_of(described.cluster_info, described.config.memory_proportion)
    elif "connection" in held:
        found = cluster_of(strict.decode_file(path, ClusterInfo, "cluster"))
    else:
        found = strict.decode_file(path, Cluster, "cluster")
    return found if found.name else msgspec.structs.replace(found, name=Path(path).stem)


def cluster(name: str | Cluster) -> Cluster:
    """Return the cluster called `name`, see :func:`preset`; one that is given itself as it is."""
    if isinstance(name, Cluster):
        return name
    if isinstance(name, str):
        return preset(name).cluster
    many = f"Cluster.uniform({name})" if isinstance(name, int) else "a Cluster"
    raise InputError(
        f"{name!r} is no cluster",
        field="cluster",
        remedy=f"give {many} or a name of the catalog, such as generic-4",
    )


def changed(
    cluster: Cluster,
    *,
    devices: int | None = None,
    capacity: int | Sequence[int] | None = None,
    bandwidth: float | None = None,
    speed: Sequence[float] | None = None,
) -> Cluster:
    """Return `cluster` with some facts replaced; None leaves them as they are.

    A cluster whose `devices` differ cannot be resized.  `capacity` is usable bytes, `speed` is
    relative to others: one number for all devices, or one each.  `bandwidth` is GiB/s of every
    link, the host's included, without idle cycles.  Refusals name the field.
    """
    count = len(cluster) if devices is None else devices
    each: dict[str, list[Any]] = {}
    for name, field, many, said in (
        ("speed", "speed", "speeds", speed),
        ("memory", "capacity", "capacities", capacity),
    ):
        figures = [] if said is None else list(said) if isinstance(said, Sequence) else [said]
        if len(figures) == 1:
            figures *= count
        if len(figures) not in (0, count):
            raise InputError(
                f"{len(figures)} {many} for {count} devices",
                field=field,
                remedy="give one number, or one a device",
            )
        if figures:
            each[name] = figures
    if count != len(cluster):
        if len({device.kind for device in cluster.devices}) > 1:
            raise InputError(
                f"the {len(cluster)} devices of the cluster differ: {count} of which kind?",
                field="devices",
                remedy="name a cluster (--cluster), or edit the file",
            )
        like = msgspec.structs.replace(cluster.devices[0], name="")
        kept = cluster.devices[:count]  # with their names
        more = (like,) * (count - len(kept))
        cluster = msgspec.structs.replace(cluster, devices=(*kept, *more), name="")
    if bandwidth is not None:
        link = Link(GBps=bandwidth)
        each |= dict.fromkeys(("recv", "send"), [link] * count)
        cluster = msgspec.structs.replace(cluster, host_recv=link, host_send=link)
    if not each:
        return cluster
    rows = [dict(zip(each, row, strict=True)) for row in zip(*each.values(), strict=True)]
    return msgspec.structs.replace(
        cluster,
        devices=tuple(
            msgspec.structs.replace(device, **row)
            for device, row in zip(cluster.devices, rows, strict=True)
        ),
    )


def asked(given: Words, clock: float, base: Cluster | None = None) -> Cluster:
    """Return the cluster that is `given`, else `base`, that of the file, changed as asked.

    One given by name keeps its bandwidths and delays in seconds: its idle cycles are converted to
    the `clock` (Hz) in whose cycles the layers are measured.  Refuses what contradicts itself, and
    when no cluster is known at all.
    """
    if base is not None:
        _check(base)
    named, devices = given.get("cluster"), given.get("devices")
    found = base if named is None else _at_clock(cluster(named), clock)
    if found is None:
        if devices is None:
            raise InputError(
                "the file does not say on how many devices to run",
                field="devices",
                remedy="give --devices N or --cluster NAME",
            )
        found = Cluster.uniform(devices, clock=clock)
    elif named is not None and devices not in (None, len(found)):
        raise InputError(
            f"{devices} devices but {len(found)} in cluster {found.name!r}",
            field="devices",
            remedy="give --devices or --cluster, not both",
        )
    facts = {name: given.get(name) for name in MACHINE - {"cluster"}}
    found = changed(found, **facts)
    _check(found)
    return found


def machine(given: Words) -> tuple[Preset, Cluster]:
    """Return what turns arithmetic into cycles, and the cluster to use, changed as asked.

    Devices without a cluster are those of ``generic-N``, and so is the arithmetic of a cluster that
    is no preset.
    """
    named, devices = given.get("cluster"), given.get("devices")
    if isinstance(named, Cluster):
        return _named(named.name) or _generic(1), asked(given, named.clock)
    base = preset(named or f"generic-{min(devices or 1, LARGEST_GENERIC)}")
    own = base.cluster
    return base, asked(given, own.clock, None if named is None and devices is None else own)


def _at_clock(cluster: Cluster, clock: float) -> Cluster:
    """Return `cluster` with times counted in cycles of `clock` Hz; the seconds stay the same."""
    if cluster.clock == clock:
        return cluster
    ratio = clock / cluster.clock

    def link(link: Link | None) -> Link | None:
        return None if link is None else msgspec.structs.replace(link, idle=link.idle * ratio)

    return msgspec.structs.replace(
        cluster,
        clock=clock,
        devices=tuple(
            msgspec.structs.replace(device, recv=link(device.recv), send=link(device.send))
            for device in cluster.devices
        ),
        host_recv=link(cluster.host_recv),
        host_send=link(cluster.host_send),
    )


def _check(cluster: Cluster) -> None:
    """Refuse figures of a cluster, by field, so extreme that times could not be computed."""
    _require_sane(cluster.clock, "cluster.clock")
    _check_link(cluster.host_recv, "cluster.host_recv")
    _check_link(cluster.host_send, "cluster.host_send")
    checked: set[tuple[Any, ...]] = set()
    for index, device in enumerate(cluster.devices):
        if device.kind not in checked:
            _check_device(device, f"cluster.devices[{index}]")
            checked.add(device.kind)


def _check_device(device: Device, where: str) -> None:
    _require_sane(device.speed, f"{where}.speed")
    _check_link(device.recv, f"{where}.recv")
    _check_link(device.send, f"{where}.send")


def _check_link(link: Link | None, where: str) -> None:
    if link is not None:
        _require_sane(link.GBps, f"{where}.GBps")
        _require_sane(max(1, link.idle), f"{where}.idle")


def _require_sane(value: float, where: str) -> None:
    if not (1e-12 <= value <= 2**60 and math.isfinite(value)):
        raise InputError(
            f"{value:.3g} is out of range" if value < 1e300 else "is out of range",
            field=where,
            remedy="give a number from 1e-12 to 1e18",
        )


def _ipu_pod(devices: int) -> Preset:
    return Preset(
        cluster=Cluster.uniform(
            devices,
            memory=int(894 * 0.85 * 2**20),
            link=Link(GBps=70, idle=3_000),
            host=Link(GBps=7, idle=50_000),
            clock=1_850_000_000,
            name=f"ipu-pod{devices}",
        ),
        flops_per_cycle=IPU_TILES * 64 * 2,
        # Four half-precision values a tile and cycle.
        values_per_cycle=IPU_TILES * 4,
        utilisation=0.4,
        # 8 KiB of code and 2 KiB of vertex state on each tile.
        code_bytes=IPU_TILES * 8 * 1024,
        code_part=None,
        state_bytes=IPU_TILES * 2 * 1024,
        description=f"{devices} IPUs with the figures of Auto Pipeline",
    )


def _generic(devices: int) -> Preset:
    link = Link(GBps=32, idle=1_000)
    return Preset(
        cluster=Cluster.uniform(
            devices,
            memory=16 * 2**30,
            link=link,
            host=link,
            clock=1_000_000_000,
            name=f"generic-{devices}",
        ),
        flops_per_cycle=100_000,
        values_per_cycle=1_000,
        utilisation=0.5,
        code_bytes=2**20,
        code_part=16,
        state_bytes=0,
        description=f"{devices} devices with round numbers",
    )


def _accelerated(name: str, nodes: Sequence[accelerators.Node]) -> Preset:
    """Return accelerators, with the arithmetic of the first; pointwise work is in bf16."""
    first = nodes[0].of
    giga = accelerators.CLOCK  # GB/s are bytes in each of its cycles
    return Preset(
        cluster=accelerators.cluster(name, nodes),
        flops_per_cycle=round(first.tflops * 10**12) // giga,
        values_per_cycle=int(first.bandwidth // 4),
        utilisation=first.products,
        code_bytes=0,
        code_part=None,
        state_bytes=0,
        description=f"{first.source}; {nodes[0].near.source}",
        memory_bandwidth=first.reads * first.bandwidth * accelerators.GB / giga,
    )
