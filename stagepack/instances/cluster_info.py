"""Clusters as *Auto Pipeline* (ipu_tensorflow_addons) describes them: its ``cluster_info``.

A dictionary with the ``clock`` in Hz, the ``memory`` of a device in MiB, and in ``connection`` for
every device GB/s (2**30 bytes a second) and idle cycles of what it receives and sends.  The host
talks to the first device's receive link and the last one's send link.  A device may use
``int(memory * memoryProportion * 2**20)`` bytes; that share stands in ``config``, which a file may
hold beside ``cluster_info``, and is 1 where nothing says it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stagepack.instances.profile import Cluster, Cycles, Device, Link, Positive


class Connection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Links of one device: GB/s (2**30 bytes a second) and idle cycles."""

    recv_gbps: Positive = msgspec.field(name="recvGBps")
    send_gbps: Positive = msgspec.field(name="sendGBps")
    recv_idle_cycle: Cycles = 0
    send_idle_cycle: Cycles = 0


class ClusterInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The devices: clock in Hz, memory in MiB."""

    clock: Positive
    memory: Annotated[float, msgspec.Meta(ge=0, le=2.0**40)]
    connection: Annotated[list[Connection], msgspec.Meta(min_length=1)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The share of memory that may be planned with; how cycles were found does not matter."""

    memory_proportion: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    use_poplar_estimation: bool = True


class Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file with a cluster, and perhaps the share of memory."""

    cluster_info: ClusterInfo
    config: Config = Config()


def cluster_of(info: ClusterInfo, share: float = 1) -> Cluster:
    """Return the devices of a description, which may use a `share` of their memory."""
    links = [
        (
            Link(GBps=one.recv_gbps, idle=one.recv_idle_cycle),
            Link(GBps=one.send_gbps, idle=one.send_idle_cycle),
        )
        for one in info.connection
    ]
    capacity = int(info.memory * share * 2**20)
    return Cluster(
        devices=tuple(Device(memory=capacity, recv=recv, send=send) for recv, send in links),
        clock=info.clock,
        host_recv=links[0][0],
        host_send=links[-1][1],
    )
