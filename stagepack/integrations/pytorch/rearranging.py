"""Layers in the order of the stages of a partition of their graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from torch import fx

from stagepack.errors import InputError
from stagepack.integrations.pytorch.tracing import Traced, base_of, written_into


def rearranged(
    traced: Traced, devices: Sequence[int], order: Sequence[int] = ()
) -> tuple[Traced, tuple[int, ...]]:
    """Return a module whose layers come stage by stage, and where its stages begin.

    Layers of one stage stay in their order; `devices` are of each layer, and `order` is that of
    their stages: the lowest number first where none is said.  Boundaries go from 0 to the number of
    layers.
    """
    if len(devices) != len(traced.layers):
        raise InputError(
            f"has {len(devices)} nodes, not the {len(traced.layers)} layers of the module",
            field="assignment",
            remedy="solve the graph of this profile, with another objective than forward+backward",
        )
    pairs = [(devices[a], devices[b]) for a, b in _waits(traced)]
    place = {device: at for at, device in enumerate(order or _order(devices, pairs))}
    against = next((pair for pair in pairs if place[pair[0]] > place[pair[1]]), None)
    if against is not None:
        raise _circle(against)
    rows = sorted(range(len(devices)), key=lambda at: place[devices[at]])
    stages = [place[devices[at]] for at in rows]
    begins = [at for at, (a, b) in enumerate(pairwise(stages), 1) if a != b]
    layers = tuple(traced.layers[at] for at in rows)
    return dataclasses.replace(traced, layers=layers), (0, *begins, len(rows))


def _waits(traced: Traced) -> Iterator[tuple[int, int]]:
    """Yield pairs of layers of which the first must run before the second.

    It makes what the second one reads, or one of both writes into what both use.
    """
    owner = {node: at for at, layer in enumerate(traced.layers) for node in layer.nodes}
    written = {base_of(node) for node in written_into(traced.graph.graph)}
    last: dict[fx.Node, int] = {}
    for at, layer in enumerate(traced.layers):
        for source in layer.inputs:
            if source in owner:
                yield owner[source], at
        for node in layer.nodes:
            for used in (node, *node.all_input_nodes):
                base = base_of(used)
                if base in written:
                    yield last.get(base, at), at
                    last[base] = at


def _order(devices: Sequence[int], pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return devices in an order in which none waits for a later one, the lowest number first."""
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(devices, ()))
    for before, after in pairs:
        if before != after:
            sorter.add(after, before)
    try:
        sorter.prepare()
    except CycleError as error:
        raise _circle(error.args[1][:2]) from None
    order, ready = [], set(sorter.get_ready())
    while ready:
        device = min(ready)
        ready.remove(device)
        order.append(device)
        sorter.done(device)
        ready.update(sorter.get_ready())
    return order


def _circle(pair: Sequence[int]) -> InputError:
    return InputError(
        f"devices {pair[0]} and {pair[1]} wait for one another, so that they are no stages",
        field="assignment",
        remedy="solve a graph whose stages are contiguous",
    )
