"""Graph partitions in text: facts, and a table of devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.contracts import JsonObject, Number
from stagepack.instances.graph import GraphPartition, GraphSolution, Objective
from stagepack.instances.graph.check import loads, plain
from stagepack.instances.profile import Array
from stagepack.report import format as as_text
from stagepack.report.graph.numbers import duration, unit, worth
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import View
from stagepack.shown import some

PRINTED = 40  # devices of a solution
STAGES = {
    (True, True): "side by side, each in one go",
    (False, True): "follow one another",
    (False, False): "anywhere in the graph",
}
COLUMNS = (
    "stage", "device", "devices", "nodes", "load", "time", "received", "sent", "memory", "limit",
)  # fmt: skip


class GraphView(View[GraphPartition, GraphSolution]):
    """What graph partitions look like."""

    chosen = "Partition of"
    things = (GraphSolution,)

    def unit(self, instance: GraphPartition) -> str:
        """Return what objectives are counted in: times as the instance says."""
        return unit(instance)

    def unit_of(self, objective: str) -> str:
        """Return what an objective is counted in: of times only an instance knows."""
        return "bytes" if objective == Objective.MEMORY else ""

    def facts(self, instance: GraphPartition) -> JsonObject:
        """Return sizes and totals as plain data."""
        capacity, bandwidth = instance.capacity, instance.bandwidth
        links = bandwidth if isinstance(bandwidth, np.ndarray) else np.array([bandwidth])
        coloured = instance.colour[instance.colour >= 0]
        return {
            "nodes": instance.n,
            "edges": len(instance.edges),
            "tensors": int((np.diff(instance.consumer_ptr) > 0).sum()),
            "backward_nodes": int(instance.backward.sum()),
            "colours": len(np.unique(coloured)),
            "time": _total(instance.time),
            "cpu_time": _total(instance.cpu_time) if instance.cpus else None,
            "time_unit": instance.time_unit,
            "traffic": _total(instance.traffic),
            "traffic_unit": instance.traffic_unit,
            "memory": int(instance.memory.sum()),
            "stash": int(instance.stash.sum()),
            "accelerators": instance.accelerators,
            "cpus": instance.cpus,
            "speeds": _ends(instance.speeds),
            "capacity": None if capacity is None else _ends(capacity),
            "bandwidth": _ends(links[links > 0]),
            "device_order": str(instance.device_order),
            "empty_devices": instance.empty_devices,
            "contiguous": instance.contiguous,
            "side_by_side": instance.objective == Objective.LATENCY,
            "microbatches": instance.microbatches,
            "proviso": instance.proviso or None,
        }

    def lines(self, given: JsonObject) -> list[tuple[str, str]]:
        """Return facts as (what, text) for people."""
        number = as_text.number
        nodes = number(given["nodes"])
        if given["backward_nodes"]:
            nodes += f", {number(given['backward_nodes'])} of the backward pass"
        found = [
            ("Nodes", nodes),
            ("Edges", f"{number(given['edges'])} of {number(given['tensors'])} tensors"),
            ("Time", f"{number(given['time'])} {given['time_unit']}".rstrip()),
            ("Traffic", f"{number(given['traffic'])} {given['traffic_unit']}".rstrip()),
            ("Memory", as_text.quantity(given["memory"])),
            ("Accelerators", number(given["accelerators"])),
            ("Bandwidth", _range(given["bandwidth"])),
            ("Stages", STAGES[given["side_by_side"], given["contiguous"]]),
        ]
        said = {
            "CPUs": given["cpus"]
            and f"{number(given['cpus'])}, {number(given['cpu_time'])} "
            f"{given['time_unit']}".rstrip()
            + " on one",
            "Colours": given["colours"] and number(given["colours"]),
            "Capacity": given["capacity"] and _range(given["capacity"], as_text.quantity),
            "Speeds": given["speeds"] not in ([1, 1], []) and _range(given["speeds"]),
            "Stash": given["stash"]
            and f"{as_text.quantity(given['stash'])} a microbatch, "
            f"{number(given['microbatches'])} in flight at most",
            "Devices": not given["empty_devices"] and "each has nodes",
            "Order": given["device_order"] == "fixed" and "stages in the order of the devices",
            "Note": given["proviso"],
        }
        return found + [(what, text) for what, text in said.items() if text]

    def headline(self, instance: GraphPartition) -> str:
        """Return what an instance is, in one line."""
        devices = as_text.plural(instance.accelerators, "accelerator")
        if instance.cpus:
            devices += f" and {as_text.plural(instance.cpus, 'CPU')}"
        if instance.stash.any():
            many = "es" if instance.microbatches > 1 else ""
            devices += f", training with {instance.microbatches:,} microbatch{many} in flight"
        elif instance.backward.any():
            devices += ", training"
        return f"{as_text.plural(instance.n, 'node')} on {devices}, {instance.objective}"

    def rows(self, instance: GraphPartition, solution: GraphSolution) -> list[JsonObject]:
        """Return what each device amounts to, in the order of stages."""
        capacity = instance.capacity
        alone = instance.objective in (Objective.OVERLAP, Objective.REPLICATED)
        return [
            {
                "stage": load.stage,
                "device": instance.device_name(load.device),
                "devices": load.replicas,
                "nodes": load.nodes,
                "load": plain(load.overlap if alone else load.sum),
                "time": plain(load.time),
                "received": plain(load.received),
                "sent": plain(load.sent),
                "memory": load.memory,
                "limit": int(capacity[load.device])
                if capacity is not None and load.device < instance.accelerators
                else None,
            }
            for load in loads(instance, solution)
        ]

    def solution_facts(self, instance: GraphPartition, solution: GraphSolution) -> JsonObject:
        """Return what a partition amounts to, as plain data under the names it has in JSON."""
        return {"stages": self.rows(instance, solution)}

    def columns(self, instance: GraphPartition, solution: GraphSolution) -> list[JsonObject]:
        """Return a row a device."""
        return self.rows(instance, solution)

    def shown(self, thing: object, *, whole: bool = False) -> list[str | Head | Sheet]:
        """Return how a partition prints."""
        assert isinstance(thing, GraphSolution)
        devices = as_text.plural(len(np.unique(thing.assignment)), "device")
        head = f"{as_text.plural(len(thing.assignment), 'node')} on {devices}"
        return [f"{head}\ndevices {some(thing.assignment)}"]

    def account(self, instance: GraphPartition, solution: GraphSolution) -> Account:
        """Return what a partition amounts to, and a line a device."""
        number, rows = as_text.number, self.rows(instance, solution)
        figures = {key: [row[key] for row in rows] for key in COLUMNS}
        given: tuple[str, ...] = COLUMNS
        if set(figures["devices"]) == {1}:
            given = tuple(name for name in given if name != "devices")
        if set(figures["limit"]) == {None}:
            given = tuple(name for name in given if name != "limit")
        totals = [
            ("Objective", worth(instance, instance.evaluate(solution))),
            ("Stages", number(len(rows))),
        ]
        if instance.objective == Objective.MEMORY:
            totals.append(("Bytes of all devices", number(sum(figures["memory"]))))
        else:
            totals += [
                ("Busiest device", duration(instance, max(figures["load"]))),
                ("Mean load", duration(instance, sum(figures["load"]) / len(rows))),
                ("Traffic that crosses, in time", duration(instance, sum(figures["sent"]))),
            ]
        sheet = Sheet(
            given,
            [[_cell(name, row[name]) for name in given] for row in rows],
            words=("device",),
            spare=("sent", "received", "limit", "memory"),
            title=f"Devices, times in {instance.time_unit}" if instance.time_unit else "Devices",
            most=PRINTED,
            what="device",
            rest="JSON has all",
        )
        return Account(totals, sheet)


def _cell(name: str, value: Number | str | None) -> str:
    """Return a value of a table as it is written; bytes with their unit."""
    if name in ("memory", "limit"):
        return as_text.quantity(None if value is None else int(value))
    return value if isinstance(value, str) else as_text.number(value)


def _total(figures: Array) -> Number:
    """Return the sum of figures as a number of Python."""
    total: Number = figures.sum().item()
    return total


def _ends(figures: Array) -> list[int]:
    """Return the least and the largest of some figures, if there are any."""
    return [figures.min().item(), figures.max().item()] if len(figures) else []


def _range(ends: list[int], text: Callable[[int], str] = as_text.number) -> str:
    """Return the least and the largest, one where they are the same."""
    return " to ".join(dict.fromkeys(map(text, ends))) or as_text.NOTHING


VIEW = GraphView(
    "picture.draw",
    "figure.partition_charts",
)
