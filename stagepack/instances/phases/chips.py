"""Chips with remote memory: the GC200, and a device of a cluster.

The chip ``gc200`` has the figures of Graphcore's GC200 in an IPU-M2000, all of them peaks:

- 1472 tiles, 900 MB of memory, 250 TFLOP/s in half precision, which at 64 multiply-accumulates a
  tile and cycle is a clock of 1.327 GHz (Graphcore, *IPU-M2000 datasheet*, 2021);
- remote memory: the DRAM of the machine's gateway, which each pair of chips reaches over PCIe 4.0
  with 8 lanes (block diagram in Graphcore's *BMC user guide*): 15.75 GB/s;
- host: one 100 Gb/s network card for the machine's four chips (same diagram): 3.125 GB/s each;
- other replicas: IPU-Link, 512 Gb/s (*Bow-2000 datasheet*, overview; the machines are alike);
- a tile takes 4 bytes a cycle from the exchange: 8 TB/s for all tiles (*IPU-M2000 datasheet*);
- I/O tiles: none, or an even number from 32 to 192, as PopTorch's ``numIOTiles`` takes;
- 50,000 cycles before a phase: the idle cycles of a transfer through the gateway in the readme of
  *Auto Pipeline*; for phases an assumption.

GB are 10**9 bytes.

A cluster knows of its devices their memory, speed and links.  What is on none of them is reached
over the link to the host, remote memory too, whose idle cycles come before each phase; other
replicas over the links between devices.  Devices of an ``ipu-pod`` have the tiles of a GC200; of
others it is not known that any are set aside for input and output.
"""

from __future__ import annotations

import msgspec
import numpy as np

from stagepack.errors import InputError, suggest
from stagepack.instances.profile import Array, Chip, Cluster, Link

GC200 = Chip(
    name="gc200",
    memory=900_000_000,
    tiles=1472,
    io_tiles=(32, 192),
    io_tile_step=2,
    io_tiles_optional=True,
    remote_bandwidth=11.87,  # 15.75 GB/s at 1.327 GHz
    host_bandwidth=2.355,  # 3.125 GB/s
    tile_bandwidth=4,
    gather_bandwidth=48.2,  # 64 GB/s
    startup=50_000,
    clock=1_327_000_000,
)
CHIPS = {GC200.name: GC200}
IPUS = "ipu-pod"
"""How clusters are called whose devices have the tiles of a GC200."""
DIGITS = 6
"""Of rates, which count by their decimal text."""


def preset(name: str) -> Chip:
    """Return a chip with remote memory by name; refuse an unknown one."""
    if name not in tuple(CHIPS):  # whatever it is, a list even
        raise InputError(f"unknown chip {name!r}", field="remote", remedy=suggest(name, CHIPS))
    return CHIPS[name]


def at_clock(chip: Chip, clock: float) -> Chip:
    """Return a chip whose rates and delays are counted in cycles of another clock."""
    ratio = float(chip.clock) / float(clock)
    if ratio == 1:
        return chip
    names = ("remote_bandwidth", "host_bandwidth", "tile_bandwidth", "gather_bandwidth")
    rates = {
        name: _rate(value * ratio) for name in names if (value := getattr(chip, name)) is not None
    }
    return msgspec.structs.replace(chip, clock=clock, startup=round(chip.startup / ratio), **rates)


def of_device(cluster: Cluster) -> Chip:
    """Return the first device of a cluster as a chip, in cycles of its clock; see above."""
    device, clock = cluster.devices[0], float(cluster.clock)
    like = GC200 if cluster.name.startswith(IPUS) else Chip()
    host = [link for link in (cluster.host_recv, cluster.host_send) if link is not None]
    links = [link for link in (device.recv, device.send) if link is not None]
    outside = _bandwidth(host, clock)
    return msgspec.structs.replace(
        like,
        name=cluster.name,
        clock=cluster.clock,
        memory=device.memory,
        remote_bandwidth=outside,
        host_bandwidth=outside,
        gather_bandwidth=_bandwidth(links, clock),
        startup=round(max((link.idle for link in host), default=0)),
    )


def whole_cycles(cycles: Array, speed: float) -> Array:
    """Return cycles on a device of some speed, rounded up for each layer."""
    if speed == 1 and cycles.dtype.kind == "i":
        return cycles
    return np.ceil(cycles / speed).astype(np.int64)


def _bandwidth(links: list[Link], clock: float) -> float | None:
    """Return the bytes a cycle of the slowest link; None where there is none."""
    slowest = min((float(link.GBps) for link in links), default=None)
    return None if slowest is None else _rate(slowest * 2**30 / clock)


def _rate(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
