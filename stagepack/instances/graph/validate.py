"""Validates the arguments of graph partitions; errors name the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.files import in_bytes
from stagepack.instances import arrays, joining
from stagepack.instances.arrays import Given, distinct
from stagepack.instances.graph.components import numbered, rows
from stagepack.instances.graph.data import GraphData
from stagepack.instances.graph.levels import table_of
from stagepack.instances.graph.problem import DeviceOrder, Objective
from stagepack.instances.profile import Array
from stagepack.instances.words import LARGEST

MOST = 2**31
"""Nodes, tensors, devices: pairs of them have 64 bits."""
MOST_DEVICES = 2**20
CYCLES = "cycles"
"""The unit of times that a clock turns into seconds."""
MOST_PASSAGES = 2**23  # tensors times bandwidths that differ
LONGEST_CIRCLE = 12  # nodes of one that a message names


def time_unit(given: str) -> str:
    """Return the word for what times are counted in; "" where there is none."""
    if given and not (given.isascii() and given.isalpha()):
        raise InputError(
            f"{given[:40]!r} is no word",
            field="time_unit",
            remedy="give cycles, us, or leave it out",
        )
    return given


def clock(given: Number | None, unit: str) -> Number | None:
    """Return the cycles of a second, where times are cycles of a known clock; else None."""
    if given is None:
        return None
    if unit != CYCLES:
        raise InputError(
            f"goes with times in {CYCLES}", field="clock", remedy=f"give time_unit {CYCLES!r}, too"
        )
    (cycles,) = arrays.numbers([given], "clock").tolist()
    if not 0 < cycles <= LARGEST:
        raise InputError(f"{cycles}", field="clock", remedy="give the cycles of a second")
    return cast("Number", cycles)


def flags(given: Given, name: str, n: int, usual: bool) -> Array:
    """Return a flag a node: a lone one stands for all, `usual` where `name` is not given."""
    found = np.asarray(usual if given is None else given)
    if found.ndim == 0:
        found = np.full(n, found)
    whole = found.dtype.kind in "iu" and np.isin(found, (0, 1)).all()
    if found.shape != (n,) or not (found.dtype.kind == "b" or whole):
        raise InputError(
            f"has shape {found.shape}" if found.shape != (n,) else "are no flags",
            field=name,
            remedy=f"give {n} times true or false",
        )
    return frozen(found.astype(bool))


def devices(accelerators: int, cpus: int) -> tuple[int, int]:
    """Return numbers of devices, refused where there are none, or more than arrays hold."""
    found = []
    for name, given in (("accelerators", accelerators), ("cpus", cpus)):
        found.append(arrays.integer(given, name, 0))
        if sum(found) > MOST_DEVICES:
            raise InputError(
                f"make {sum(found):,} devices", field=name, remedy=f"give at most {MOST_DEVICES:,}"
            )
    if not sum(found):
        raise InputError("no devices", field="accelerators", remedy="give at least one device")
    return found[0], found[1]


def colours(given: Given, n: int) -> Array:
    """Return a colour a node, -1 for none."""
    if given is None:
        return frozen(np.full(n, -1, dtype=np.int64))
    return arrays.integers(given, "colour", "node", n, least=-1)


def speeds(given: Given, k: int) -> Array:
    """Return the speeds of k accelerators; a lone one stands for all."""
    lone = given is not None and np.ndim(given) == 0
    found = arrays.numbers(np.full(k, given) if lone else given, "speeds", (k,))
    wrong = (found < 1e-9) | (found > 1e9)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"entry {at} is {found[at]}", field="speeds", remedy="give speeds around 1"
        )
    return frozen(found.astype(np.int64)) if (found == np.rint(found)).all() else found


def capacity(given: Given, k: int) -> Array | None:
    """Return the bytes of k accelerators, a lone number for all; None: no limit."""
    if given is None or k == 0:
        return None
    return arrays.integers(
        in_bytes(given, "capacity"), "capacity", "accelerator", k, least=0, spread=True
    )


def require_count(figures: Any, name: str, n: int) -> None:
    """Refuse `figures`, called `name`, of which there is not one for each of `n` nodes."""
    if np.ndim(figures) == 1 and len(figures) != n:
        raise InputError(
            f"{len(figures):,} for {n:,} nodes", field=name, remedy="give one for each node"
        )


def by_node(given: Any, name: str, known: Sequence[object]) -> Any:
    """Return what is `given` as `name`, for all nodes or each, in the order of the `known` nodes.

    Refuses a mapping that lacks a node, naming it.
    """
    if callable(given):
        return [given(node) for node in known]
    if not isinstance(given, Mapping):
        return given
    missing = next((node for node in known if node not in given), None)
    if missing is not None:
        raise InputError("is missing", field=f"{name}.{missing}", remedy="name every node")
    return [given[node] for node in known]


def edges(given: Iterable[tuple[Any, Any]], known: Sequence[object]) -> Array:
    """Return pairs of positions of the `known` nodes, (writer, reader), shape (edges, 2).

    Refuses the edge that is no pair, or leads to a node that there is not.
    """
    if isinstance(known, range):
        pairs = np.asarray(given if isinstance(given, np.ndarray) else list(given))
        if pairs.size == 0:
            return np.zeros((0, 2), dtype=np.int64)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise InputError("are no pairs of nodes", field="edges", remedy="give (u, v)")
        wrong = ((pairs < 0) | (pairs >= len(known))).any(axis=1)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"is {tuple(pairs[at].tolist())}, which are not both nodes",
                field=f"edges[{at}]",
                remedy=f"nodes are 0..{len(known) - 1}",
            )
        return _not_looping(pairs.astype(np.int64), known)
    place = {node: at for at, node in enumerate(known)}
    if len(place) < len(known):
        twice = next(node for at, node in enumerate(known) if place[node] != at)
        raise InputError(f"{twice!r} comes twice", field="nodes", remedy="give each once")
    found = []
    for at, edge in enumerate(given):
        try:
            u, v = edge
        except (TypeError, ValueError):
            raise InputError(
                f"{edge!r} is no pair", field=f"edges[{at}]", remedy="give (u, v)"
            ) from None
        for node in (u, v):
            if node not in place:
                raise InputError(
                    f"{node!r} is no node", field=f"edges[{at}]", remedy="name it among the nodes"
                )
        found.append((place[u], place[v]))
    return _not_looping(np.array(found, dtype=np.int64).reshape(-1, 2), known)


def _not_looping(pairs: Array, known: Sequence[object]) -> Array:
    """Return pairs of nodes, none of which reads itself."""
    looping = pairs[:, 0] == pairs[:, 1]
    if looping.any():
        at = int(np.argmax(looping))
        raise InputError(
            f"node {known[pairs[at, 0]]!r} reads itself",
            field=f"edges[{at}]",
            remedy="leave it out",
        )
    return pairs


def where(allowed: Array, times: Array) -> Array:
    """Return times, 0 where a node may not run."""
    if not allowed.any():
        return frozen(np.zeros(len(times), dtype=np.int64))
    return times if allowed.all() else frozen(np.where(allowed, times, 0))


def frozen(array: Array) -> Array:
    """Return an array that none can change."""
    array.setflags(write=False)
    return array


def tensors(
    n: int, producer: Given, consumers: Given, consumer_ptr: Given
) -> tuple[Array, Array, Array]:
    """Return producers, pointers and consumers of tensors: consumers rise, each once.

    There are `n` nodes; `consumers` are in one row with `consumer_ptr`, else a list a tensor.
    Refuses, by its number, a tensor that names no node, or its own `producer` among its consumers.
    """
    sources = arrays.integers([] if producer is None else producer, "producer", "tensor")
    count = len(sources)
    if consumer_ptr is None:
        lists = [np.ravel(part).tolist() for part in cast("Iterable[Any]", consumers or ())]
        if len(lists) != count:
            raise InputError(
                f"{len(lists):,} lists for {count:,} tensors",
                field="consumers",
                remedy="give the nodes that read it for each tensor",
            )
        consumer_ptr = np.cumsum([0, *map(len, lists)])
        consumers = [node for part in lists for node in part]
    targets = arrays.integers(consumers, "consumers", "edge")
    ends = arrays.integers(consumer_ptr, "consumer_ptr", "tensor and one more", count + 1)
    if ends[0] != 0 or ends[-1] != len(targets) or (np.diff(ends) < 0).any():
        raise InputError(
            f"does not rise from 0 to {len(targets):,}",
            field="consumer_ptr",
            remedy="tensor j is read by consumers[consumer_ptr[j]:consumer_ptr[j + 1]]",
        )
    for name, nodes in (("producer", sources), ("consumers", targets)):
        wrong = (nodes < 0) | (nodes >= n)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"entry {at} is {nodes[at]}, no node",
                field=name,
                remedy=f"nodes are 0..{n - 1}",
            )
    tensor = np.repeat(np.arange(count), np.diff(ends))
    looping = sources[tensor] == targets
    if looping.any():
        at = int(tensor[np.argmax(looping)])
        raise InputError(
            f"tensor {at} is read by node {sources[at]}, which writes it",
            field="consumers",
            remedy="leave out edges from a node to itself",
        )
    ends, targets = rows(count, tensor, targets)
    return sources, frozen(ends), frozen(targets)


def bandwidth(
    given: Given, levels: Iterable[tuple[int, Number]] | None, devices: int
) -> Number | Array:
    """Return one bandwidth for all links, or a table from device to device of `devices`.

    `levels` may say it instead: devices of an innermost group and the bandwidth among them, such
    groups of the next larger one and the bandwidth among these, and so on.
    """
    if levels is not None:
        if given is not None:
            raise InputError("is given beside levels", field="bandwidth", remedy="give one of them")
        given = table_of(levels, devices)
    elif given is None:
        return 1
    # Of rows of unlike lengths NumPy makes no array.
    single = not isinstance(given, list | tuple) and np.ndim(given) == 0
    if single:
        pace: Number = arrays.numbers(np.reshape(given, 1), "bandwidth").item()
        table = np.array([[pace]])
    else:
        table = np.array(arrays.numbers(given, "bandwidth", (devices, devices)))
    between = ~np.eye(devices, dtype=bool) if not single else np.ones((1, 1), dtype=bool)
    paces = distinct(table[between])
    if len(paces) and not (paces[0] >= 1e-18 and paces[-1] <= 1e18):
        raise InputError(
            f"is {paces[0] if paces[0] < 1e-18 else paces[-1]}",
            field="bandwidth",
            remedy="give positive numbers up to 1e18",
        )
    if len(paces) < 2:
        only: Number = paces[0].item() if len(paces) else 1
        return int(only) if only == int(only) else only
    table[~between] = 0
    return frozen(table)


def instance(given: GraphData) -> None:
    """Refuse fields that do not fit one another, nodes in a circle, sums that could overflow."""
    n, k = given.n, given.devices
    if max(n, len(given.producer), len(given.consumers), k) >= MOST:
        raise InputError("is too large", field="nodes", remedy="give fewer than 2**31 of all")
    if k > n and not given.empty_devices:
        raise InputError(
            f"{k:,} devices for {n:,} {'node' if n == 1 else 'nodes'}",
            field="accelerators",
            remedy="use at most one device a node, or allow empty ones (empty_devices)",
        )
    if not 1 <= given.microbatches < MOST:
        raise InputError(
            f"{given.microbatches} microbatches",
            field="microbatches",
            remedy="give at least one and fewer than 2**31",
        )
    if given.objective == Objective.REPLICATED:
        _alike(given)
    if given.objective == Objective.LATENCY:
        _one_sample(given)
    _sums(given)
    _acyclic(given)


def _alike(given: GraphData) -> None:
    """Refuse devices among which a stage cannot be shared out evenly."""
    if not given.uniform:
        raise InputError(
            "differs from link to link, so that what replicas of a stage exchange would depend on "
            "where they are",
            field="bandwidth",
            remedy="give one for all (that of the slowest links is safe), or objective overlap",
        )
    unlike = {
        "cpus": given.cpus > 0,
        "speeds": len(np.unique(given.speeds)) > 1,
        "capacity": given.capacity is not None and len(np.unique(given.capacity)) > 1,
    }
    for field, wrong in unlike.items():
        if wrong:
            raise InputError(
                "makes devices unlike, which stages cannot be shared among",
                field=field,
                remedy="give accelerators of one kind, or another objective",
            )


def _one_sample(given: GraphData) -> None:
    """Refuse rules for stages that follow one another, and more than one forward pass."""
    wrong = {
        "contiguous": (not given.contiguous, "leave it out"),
        "device_order": (given.device_order == DeviceOrder.FIXED, "use any"),
        "empty_devices": (not given.empty_devices, "allow them, or give fewer devices"),
        "bandwidth": (not given.uniform, "give one for all (that of the slowest links is safe)"),
        "backward": (bool(given.backward.any()), "give the forward pass alone"),
        "microbatches": (given.microbatches > 1 and bool(given.stash.any()), "give one"),
    }
    for field, (refused, remedy) in wrong.items():
        if refused:
            raise InputError(
                "is not known to the objective latency, that of one sample forward through any "
                "of the devices, links alike, each accelerator in one go",
                field=field,
                remedy=f"{remedy}, or use another objective",
            )


def _sums(given: GraphData) -> None:
    """Refuse figures whose sums could overflow."""
    times = [given.time, given.cpu_time]
    if sum(float(np.sum(column, dtype=np.float64)) for column in times) >= LARGEST:
        raise InputError(
            "the sum of all times exceeds 2**62", field="time", remedy="use a coarser unit"
        )
    if float(np.sum(given.traffic, dtype=np.float64)) * max(given.devices, 4) >= LARGEST:
        raise InputError(
            "the traffic of all tensors on all devices exceeds 2**62",
            field="traffic",
            remedy="use a coarser unit",
        )
    paces = len(distinct(np.ravel(given.bandwidth)))
    if paces > 2 and paces * len(given.traffic) > MOST_PASSAGES:
        raise InputError(
            f"has {paces:,} different values for {len(given.traffic):,} tensors",
            field="bandwidth",
            remedy=f"round it to at most {MOST_PASSAGES // len(given.traffic):,}",
        )
    held = float(np.sum(given.memory, dtype=np.float64))
    held += given.microbatches * float(np.sum(given.stash, dtype=np.float64))
    held += 4 * given.devices * float(np.sum(given.parameters, dtype=np.float64))
    if held >= LARGEST:
        raise InputError(
            "the sum of all bytes exceeds 2**62", field="memory", remedy="use a coarser unit"
        )


def _acyclic(given: GraphData) -> None:
    """Refuse a graph with a circle, naming its nodes."""
    component = numbered(given.n, given.edges)
    if len(component) == 0 or component.max() == given.n - 1:
        return
    inside = component[given.edges[:, 0]] == component[given.edges[:, 1]]
    circle = joining.circle(given.edges[inside].tolist())
    names = [given.node_name(node) for node in [*circle, circle[0]]]
    if len(names) > LONGEST_CIRCLE:
        names[LONGEST_CIRCLE - 2 : -1] = ["..."]
    raise InputError(
        f"nodes read one another in a circle: {' -> '.join(names)}",
        field="edges",
        remedy="leave one of these out",
    )
