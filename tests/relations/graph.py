"""Relations between graphs of operators."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from stagepack.instances.graph import GraphPartition
from tests.random_graphs import random_instance
from tests.relations.relation import NO_WORSE, SAME, Relation, scaled

PARTED = ("time", "cpu_time", "memory", "stash", "parameters")
BOTH = ("accelerator", "cpu", "backward")


def instance(seed: int) -> GraphPartition:
    """Return a graph of a few nodes; every third is a tree or a ladder of equal ones."""
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 7))
    if seed % 3:
        return random_instance(draw, n)
    reads = [[at + 1, at + 2][: n - 1 - at] for at in range(n - 1)]
    if seed % 2:
        reads = [[child for child in (2 * at + 1, 2 * at + 2) if child < n] for at in range(n)]
    return GraphPartition.from_arrays(
        [int(draw.integers(1, 20))] * n,
        producer=range(len(reads)),
        consumers=reads,
        traffic=[int(draw.integers(1, 9))] * len(reads),
        memory=[3] * n,
        accelerators=int(draw.integers(1, 4)),
        capacity=3 * int(draw.integers(1, n + 1)),
        objective=str(draw.choice(["sum", "overlap", "memory"])),
    )


def nets(given: GraphPartition) -> list[list[int]]:
    """Return the readers of each tensor."""
    ends = given.consumer_ptr.tolist()
    readers = given.consumers.tolist()
    return [readers[a:b] for a, b in itertools.pairwise(ends)]


def larger(given: GraphPartition) -> GraphPartition:
    return given.replace(capacity=None if given.capacity is None else 2 * given.capacity)


def one_more(given: GraphPartition) -> GraphPartition:
    """Return a graph with another accelerator like the last one, which may stay without nodes."""
    k, links = given.accelerators, given.bandwidth
    if isinstance(links, np.ndarray):
        rows = [*range(k), k - 1, *range(k, given.devices)]
        links = links[np.ix_(rows, rows)]
        links[[k - 1, k], [k, k - 1]] = links.max()  # there was no link from a device to itself
    last = [*range(k), k - 1]
    return given.replace(
        accelerators=k + 1,
        speeds=given.speeds[last],
        capacity=None if given.capacity is None else given.capacity[last],
        bandwidth=links,
        empty_devices=True,
    )


def empty(given: GraphPartition) -> GraphPartition:
    return given.replace(empty_devices=True)


def any_order(given: GraphPartition) -> GraphPartition:
    return given.replace(device_order="any")


def faster(given: GraphPartition) -> GraphPartition:
    return given.replace(speeds=2 * given.speeds)


def linked(given: GraphPartition) -> GraphPartition:
    return given.replace(bandwidth=2 * given.bandwidth)


def uncoloured(given: GraphPartition) -> GraphPartition | None:
    """Return a graph whose nodes need not share devices; colours also say where passes meet."""
    return None if given.backward.any() else given.replace(colour=np.full(given.n, -1))


def shuffled(given: GraphPartition) -> GraphPartition:
    """Return a graph with its nodes in another order."""
    return _renumbered(given, np.random.default_rng(given.n).permutation(given.n))


def _renumbered(given: GraphPartition, order: Any) -> GraphPartition:
    """Return a graph whose node `i` is that with number ``order[i]``."""
    place = np.argsort(order)
    return given.replace(
        **{name: getattr(given, name)[order] for name in (*PARTED, *BOTH, "colour")},
        producer=place[given.producer],
        consumer_ptr=None,
        consumers=[place[some].tolist() for some in nets(given)],
        ids=None,
        names=None,
    )


def turned(given: GraphPartition) -> GraphPartition | None:
    """Return a graph whose tensors flow the other way."""
    each = nets(given)
    one = all(len(some) <= 1 for some in each)
    plain = not given.backward.any() and not given.stash.any() and one
    if not plain or not given.uniform or str(given.device_order) == "fixed":
        return None
    kept = [at for at, some in enumerate(each) if some]
    return given.replace(
        producer=[each[at][0] for at in kept],
        consumer_ptr=None,
        consumers=[[int(given.producer[at])] for at in kept],
        traffic=given.traffic[kept],
    )


def slower(given: GraphPartition) -> GraphPartition | None:
    """Return a graph all of whose times are three times as long."""
    if str(given.objective) == "memory":
        return None
    times = {name: 3 * getattr(given, name) for name in ("time", "cpu_time", "traffic")}
    return given.replace(**times, parameters=3 * given.parameters)


def heavier(given: GraphPartition) -> GraphPartition:
    """Return a graph with five times as many bytes on devices five times as large."""
    return given.replace(
        memory=5 * given.memory,
        stash=5 * given.stash,
        capacity=None if given.capacity is None else 5 * given.capacity,
    )


def heavier_time(given: GraphPartition) -> GraphPartition | None:
    return None if str(given.objective) == "memory" else heavier(given)


def heavier_memory(given: GraphPartition) -> GraphPartition | None:
    return heavier(given) if str(given.objective) == "memory" else None


def halved(given: GraphPartition) -> GraphPartition | None:
    """Return a graph with two nodes, which share a device, for the heaviest one."""
    if given.backward.any():
        return None
    at, n = int(given.time.argmax()), given.n

    def parts(column: Any) -> Any:
        half = column[at] // 2 if column.dtype.kind == "i" else column[at] / 2
        found = np.append(column, half)
        found[at] = column[at] - half
        return found

    colour = np.append(given.colour, given.colour[at])
    if colour[at] < 0:
        colour[[at, n]] = colour.max() + 1
    same = {name: np.append(getattr(given, name), getattr(given, name)[at]) for name in BOTH}
    return given.replace(
        **{name: parts(getattr(given, name)) for name in PARTED},
        **same,
        colour=colour,
        producer=[*given.producer.tolist(), at],
        consumer_ptr=None,
        consumers=[*nets(given), [n]],
        traffic=np.append(given.traffic, 0),
        ids=None,
        names=None,
    )


def twice(given: GraphPartition) -> GraphPartition | None:
    """Return a graph beside itself, on as many devices again."""
    if given.cpus or not given.uniform or str(given.device_order) == "fixed" or given.stash.any():
        return None
    n = given.n
    columns = (*PARTED, *BOTH)
    colour = np.concatenate((given.colour, np.where(given.colour < 0, -1, given.colour + n)))
    return given.replace(
        **{name: np.tile(getattr(given, name), 2) for name in columns},
        colour=colour,
        producer=np.concatenate((given.producer, given.producer + n)),
        consumer_ptr=None,
        consumers=[*nets(given), *([n + at for at in some] for some in nets(given))],
        traffic=np.tile(given.traffic, 2),
        accelerators=2 * given.accelerators,
        speeds=np.tile(given.speeds, 2),
        capacity=None if given.capacity is None else np.tile(given.capacity, 2),
        ids=None,
        names=None,
    )


RELATIONS = (
    Relation("more memory", larger, NO_WORSE),
    Relation("no limit of memory", lambda given: given.replace(capacity=None), NO_WORSE),
    Relation("one device more", one_more, NO_WORSE),
    Relation("empty devices", empty, NO_WORSE),
    Relation("any order", any_order, NO_WORSE),
    Relation("stages anywhere", lambda given: given.replace(contiguous=False), NO_WORSE),
    Relation("no colours", uncoloured, NO_WORSE),
    Relation("faster devices", faster, NO_WORSE),
    Relation("faster links", linked, NO_WORSE),
    Relation("one microbatch", lambda given: given.replace(microbatches=1), NO_WORSE),
    Relation("shuffled", shuffled, SAME),
    Relation("turned round", turned, SAME),
    Relation("three times as slow", slower, scaled(3)),
    Relation("five times the bytes", heavier_time, SAME),
    Relation("five times the bytes to hold", heavier_memory, scaled(5)),
    Relation("a node in two", halved, SAME),
    Relation("beside itself", twice, NO_WORSE),
)
