"""Evaluates and checks partitions, directly from the definitions.

It is written for trust, not for speed: one stage after the other, in exact arithmetic, without code
of the range costs on which the algorithms work.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import assert_never

import numpy as np

from stagepack.contracts import Number
from stagepack.instances.pipeline import choices
from stagepack.instances.pipeline.data import PartitionData, PipelineSolution
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.profile import Array, Link
from stagepack.instances.violation import Violation
from stagepack.instances.words import LARGEST
from stagepack.shown import some

MANY_LAYERS = 100_000  # summed pairwise in extended precision, which is as good, and fast


def check(instance: PartitionData, solution: PipelineSolution) -> tuple[Violation, ...]:
    """Return every rule that `solution` breaks, by name; () when it is valid.

    The names: ``boundaries`` (not 0 = c_0 < c_1 < ... = n), ``devices`` (unknown, repeated, out
    of order or unused; with several stages a device, another placement), ``variable`` and
    ``forbidden-cut`` (a cut where none may be), ``fixed-cut`` (a boundary is missing), ``choices``
    (alternatives that layers have not, or unlike ones in a stage where that may not be),
    ``capacity`` (what a device holds does not fit it), ``limit`` (what may be no more, of `moves`,
    is more).
    O(n + uses of shared keys + variables * log(stages)).
    """
    found = shape(instance, solution)
    if found:
        return tuple(found)
    cuts, devices = solution.boundaries, solution.devices
    found += [*choices.broken(instance, solution), *_misplaced(instance, devices)]
    instance = choices.settled(instance, solution)
    for variable in instance.variables:
        inside = slice(bisect_right(cuts, variable.first), bisect_right(cuts, variable.last))
        found += [
            Violation(
                "variable",
                f"{variable.name} is used by layers {variable.first:,} to {variable.last:,}, "
                f"cut at {cut:,}",
            )
            for cut in cuts[inside]
        ]
    forbidden, made = set(instance.forbidden_cuts), set(cuts)
    found += [
        Violation("forbidden-cut", f"boundary at {cut:,}") for cut in cuts if cut in forbidden
    ]
    found += [
        Violation("fixed-cut", f"no boundary at {cut:,}")
        for cut in instance.fixed_cuts
        if cut not in made
    ]
    found += _beyond_limit(instance, solution)
    for device, stages in by_device(solution).items():
        capacity = instance.cluster.devices[device].memory
        if capacity is None:
            continue
        need = device_memory(
            instance, [(first, end, len(devices) - j) for j, first, end in stages], device
        )
        if need > capacity:
            parts = "stages" if len(stages) > 1 else "stage"
            parts += f" {some([j for j, _, _ in stages])} (layers "
            parts += ", ".join(f"{first:,} to {end - 1:,}" for _, first, end in stages[:3])
            parts += ", ...)" if len(stages) > 3 else ")"
            found.append(
                Violation(
                    "capacity",
                    f"{parts} {'need' if len(stages) > 1 else 'needs'} {need:,} bytes on "
                    f"{instance.device_name(device)} of {capacity:,}: {need - capacity:,} too many",
                )
            )
    return tuple(found)


def _beyond_limit(instance: PartitionData, solution: PipelineSolution) -> list[Violation]:
    """Return that a cut of few moves costs more than it may."""
    limit = instance.limit
    if instance.objective is not Objective.MOVES or limit is None:
        return []
    value = evaluate(instance, solution, instance.limited)
    if value <= limit + instance.rounding * abs(limit):
        return []
    return [Violation("limit", f"{instance.limited} is {value:,}, and may be {limit:,}")]


def _misplaced(instance: PartitionData, devices: tuple[int, ...]) -> list[Violation]:
    """Return what is wrong with the devices of the stages."""
    found, k = [], instance.k
    if instance.placed:
        table = iter(instance.stage_devices)
        if not all(device in table for device in devices):  # each search goes on from the last
            found.append(Violation("devices", f"[{some(devices)}] is not as stages are placed"))
        if not instance.fewer_stages and len(devices) != len(instance.stage_devices):
            count = len(instance.stage_devices)
            found.append(Violation("devices", f"{len(devices):,} of {count:,} stages hold layers"))
        return found
    if len(set(devices)) != len(devices):
        found.append(Violation("devices", f"[{some(devices)}] names one twice"))
    if not instance.free_order and list(devices) != sorted(devices):
        found.append(Violation("devices", f"[{some(devices)}] is not in the order of the cluster"))
    if not instance.fewer_stages and len(devices) != k:
        found.append(Violation("devices", f"{len(devices):,} of {k:,} devices used"))
    return found


def by_device(solution: PipelineSolution) -> dict[int, list[tuple[int, int, int]]]:
    """Return the stages of each device that has any, as (number, first layer, end)."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for j, (first, end, device) in enumerate(solution.stages):
        found.setdefault(device, []).append((j, first, end))
    return found


def shape(instance: PartitionData, solution: PipelineSolution) -> list[Violation]:
    """Return what makes it impossible to speak of stages at all: ``boundaries``, ``devices``."""
    cuts, devices = solution.boundaries, solution.devices
    n, k = instance.n, instance.k
    if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != n:
        return [Violation("boundaries", f"[{some(cuts)}] does not run from 0 to {n:,}")]
    found = [
        Violation("boundaries", f"stage {j:,} is empty or reversed: [{cuts[j]:,}, {cuts[j + 1]:,})")
        for j in range(len(cuts) - 1)
        if cuts[j] >= cuts[j + 1]
    ]
    if len(devices) != len(cuts) - 1:
        found.append(Violation("devices", f"{len(devices):,} devices for {len(cuts) - 1:,} stages"))
    if any(not 0 <= d < k for d in devices):
        found.append(Violation("devices", f"[{some(devices)}] names one outside 0..{k - 1:,}"))
    return [*found, *choices.misfits(instance, solution.choices)]


def evaluate(
    instance: PartitionData, solution: PipelineSolution, objective: Objective | None = None
) -> Number:
    """Return the value of a valid `solution`, by the `objective` of the instance if none is given.

    It is an int whenever it is integral.  O(n + stages).  Integer cycles are summed and divided by
    speeds exactly; other cycles are floating-point sums without accumulated error.
    """
    objective = objective or instance.objective
    if objective is Objective.MOVES:
        return sum(moved_bytes(instance, *stage) for stage in solution.stages)
    instance = choices.settled(instance, solution)
    compute = [stage_compute(instance, *stage) for stage in solution.stages]
    if instance.placed:
        return plain(max(_loads_of_devices(instance, solution)))
    if objective is Objective.HEADROOM:
        return -headroom(instance, solution)
    if objective is Objective.TRANSFER_BOUNDED:
        moved = [sum(transfer) for transfer in _transfers(instance, solution)]
        return plain(max(compute) + max(moved) + host_cycles(instance))
    loads = _loads(instance, solution, objective)
    if objective is Objective.LATENCY:
        return plain(sum((Fraction(load) for load in loads), Fraction(host_cycles(instance))))
    return plain(max(loads))


def unevenness(
    instance: PartitionData, solution: PipelineSolution
) -> tuple[list[Number | Fraction], list[int]]:
    """Return what every stage, or device of several, does and holds, each the most first.

    The less that is, the more even is the partition.
    """
    instance = choices.settled(instance, solution)
    stages, loads = solution.stages, _loads(instance, solution, _counted(instance))
    if instance.placed:
        loads = _loads_of_devices(instance, solution)
    held = [stage_memory(instance, *stage, len(stages) - at) for at, stage in enumerate(stages)]
    return sorted(loads, reverse=True), sorted(held, reverse=True)


def _loads_of_devices(
    instance: PartitionData, solution: PipelineSolution
) -> list[Number | Fraction]:
    """Return the cycles of every device, those of all its stages together."""
    loads = _loads(instance, solution, Objective.BOTTLENECK)
    return [sum(loads[j] for j, _, _ in held) for held in by_device(solution).values()]


def _counted(instance: PartitionData) -> Objective:
    """Return the objective that counts cycles: what limits them where moves are minimised."""
    return instance.limited if instance.objective is Objective.MOVES else instance.objective


def _loads(
    instance: PartitionData, solution: PipelineSolution, objective: Objective
) -> list[Number | Fraction]:
    """Return the cycles of every stage, with those of its transfers as far as they count."""
    compute = [stage_compute(instance, *stage) for stage in solution.stages]
    if objective in (Objective.BOTTLENECK, Objective.HEADROOM, Objective.MOVES):
        return compute
    stages = zip(compute, _transfers(instance, solution), strict=True)
    match objective:
        case Objective.SUM | Objective.TRANSFER_BOUNDED:
            host = host_cycles(instance)
            return [own + sum(both) + host for own, both in stages]
        case Objective.OVERLAP:
            return [max(own, *both) for own, both in stages]
        case Objective.LATENCY:
            return [Fraction(own) + sum(map(Fraction, both)) for own, both in stages]
        case Objective.BOTTLENECK | Objective.HEADROOM | Objective.MOVES:
            return compute
        case unknown:
            assert_never(unknown)


def _transfers(instance: PartitionData, solution: PipelineSolution) -> list[tuple[Number, Number]]:
    """Return the cycles that every stage receives and sends, gradients of tied weights too."""
    found = []
    for first, end, device in solution.stages:
        recv = recv_cycles(instance, device, first) if first > 0 else 0
        send = send_cycles(instance, device, end) if end < instance.n else 0
        more = reduction_cycles(instance, first, end, device)
        found.append((recv + more[0], send + more[1]))
    return found


def headroom(instance: PartitionData, solution: PipelineSolution) -> int:
    """Return the tokens whose KV cache fits on every device."""
    count = len(solution.devices)
    return min(stage_headroom(instance, *s, count - j) for j, s in enumerate(solution.stages))


def stage_headroom(
    instance: PartitionData, first: int, end: int, device: int, stages_left: int = 1
) -> int:
    """Return the tokens whose KV cache fits beside a stage; 2**62 where nothing limits them.

    `first`, `end`, `device` and `stages_left` are those of :func:`stage_memory`.
    """
    each, capacity = token_bytes(instance, first, end), instance.cluster.devices[device].memory
    if not each or capacity is None:
        return LARGEST
    held = stage_memory(instance, first, end, device, stages_left)
    return (capacity - held) // each + instance.tokens


def stage_cost(instance: PartitionData, first: int, end: int, device: int) -> Number | Fraction:
    """Return what layers [`first`, `end`) count for by themselves on a `device`.

    That is their compute, or minus the tokens there is room for.
    """
    if instance.objective is Objective.HEADROOM:  # of inference: nothing is stashed
        return -stage_headroom(instance, first, end, device)
    return stage_compute(instance, first, end, device)


def stage_compute(instance: PartitionData, first: int, end: int, device: int) -> Number | Fraction:
    """Return the cycles of layers [`first`, `end`) on a `device`, a Fraction if a speed divides."""
    speed = instance.cluster.devices[device].speed
    table = instance.compute_table
    cycles: Number
    if table is not None:
        cycles = (table if table.ndim == 2 else table[device])[first, end].item()
    elif instance.cycles.dtype.kind == "i":
        # Exact: the instance bounds all sums.
        cycles = int(np.add.reduce(instance.cycles[first:end]))
    elif end - first < MANY_LAYERS:
        cycles = math.fsum(instance.cycles[first:end].tolist())
    else:
        cycles = float(np.add.reduce(instance.cycles[first:end], dtype=np.longdouble))
    if speed == 1:
        return cycles
    return cycles / speed if isinstance(cycles, float) else Fraction(cycles) / Fraction(str(speed))


def stage_memory(
    instance: PartitionData, first: int, end: int, device: int, stages_left: int
) -> int:
    """Return the bytes that layers [`first`, `end`) need as a stage of a `device`.

    `stages_left`, this stage and those after it: a training stage stashes the activations of
    min(microbatches, stages_left) microbatches.
    """
    return device_memory(instance, [(first, end, stages_left)], device)


def device_memory(
    instance: PartitionData, stages: Sequence[tuple[int, int, int]], device: int
) -> int:
    """Return the bytes that a `device` needs for its stages.

    Shared keys count once, and so does the layer that needs most while it runs.  Of `stages`: first
    layer, end, and `stages_left` as :func:`stage_memory` has it.
    """
    total, peak, shared, keys = 0, 0, instance.shared, set[int]()
    for first, end, stages_left in stages:
        layers = slice(first, end)
        if instance.training:
            total += min(instance.microbatches, stages_left) * int(instance.stash[layers].sum())
        if instance.tokens:
            total += instance.tokens * token_bytes(instance, first, end)
        if instance.memory_table is not None:
            table = instance.memory_table
            total += int((table if table.ndim == 2 else table[device])[first, end])
            continue
        total += sum(int(np.add.reduce(column[layers])) for column in instance.exclusive.values())
        if len(shared.layer):
            uses = slice(bisect_left(shared.layer, first), bisect_left(shared.layer, end))
            keys.update(shared.key[uses].tolist())
        both = instance.temporary[layers] + instance.carry[layers]
        peak = max(peak, int(np.maximum.reduce(both)))
    held: int = sum(map(shared.nbytes.item, keys))
    return total + held + peak


def token_bytes(instance: PartitionData, first: int, end: int) -> int:
    """Return the bytes that a token takes of the KV cache of the layers [`first`, `end`)."""
    return 0 if instance.kv_bytes is None else int(instance.kv_bytes[first:end].sum())


def recv_cycles(instance: PartitionData, device: int, cut: int) -> Number:
    """Return the cycles in which `device` receives what a stage that begins at `cut` reads."""
    link = instance.cluster.devices[device].recv
    return _crossing(instance, instance.recv_cycles, link, instance.in_bytes, (device, cut))


def send_cycles(instance: PartitionData, device: int, cut: int) -> Number:
    """Return the cycles in which `device` sends what a stage that ends at `cut` hands on."""
    link = instance.cluster.devices[device].send
    return _crossing(instance, instance.send_cycles, link, instance.out_bytes, (device, cut))


def reduction_cycles(
    instance: PartitionData, first: int, end: int, device: int
) -> tuple[Number, Number]:
    """Return the cycles in which a stage receives and sends gradients of tied weights.

    Of those that its layers [`first`, `end`) on `device` hold and other stages do, too: it has some
    of the layers that use them, but not all.  A step reduces once, and each of its microbatches
    bears its share; whole cycles are rounded down for each weight.
    """
    recv: Number = 0
    send: Number = 0
    if instance.tied is None or not instance.training:
        return recv, send
    one, m = instance.cluster.devices[device], instance.microbatches
    share = operator.floordiv if instance.whole else operator.truediv
    for nbytes, users in instance.tied.uses().values():
        inside = bisect_left(users, end) - bisect_left(users, first)
        if not 0 < inside < len(users):
            continue
        recv += share(_link_cycles(instance, one.recv, nbytes), m)
        send += share(_link_cycles(instance, one.send, nbytes), m)
    return recv, send


def moved_bytes(instance: PartitionData, first: int, end: int, device: int) -> int:
    """Return the bytes that a `device` has to load to run the layers [`first`, `end`).

    Those of layers that it did not hold before, and of shared keys and tied weights that none of
    the layers used which it held.
    """
    held, shared, layers = np.array(instance.previous), instance.shared, slice(first, end)
    fresh = held[layers] != device
    total = sum(int(column[layers][fresh].sum()) for column in instance.exclusive.values())
    uses = slice(bisect_left(shared.layer, first), bisect_left(shared.layer, end))
    known = set(shared.key[held[shared.layer] == device].tolist())
    fetched: int = sum(map(shared.nbytes.item, {*shared.key[uses].tolist()} - known))
    return total + fetched


def _crossing(
    instance: PartitionData,
    table: Array | None,
    link: Link | None,
    nbytes: Array,
    place: tuple[int, int],
) -> Number:
    """Return what a table says of a device and a cut, or what the bytes there take on a link."""
    if table is not None:
        return _item(table[place])
    return instance.trips * _link_cycles(instance, link, nbytes[place[1]])


def host_cycles(instance: PartitionData) -> Number:
    """Return the cycles of the exchange with the host, 0 unless every device waits for it."""
    if not instance.host_transfer:
        return 0
    cluster, n = instance.cluster, instance.n
    if instance.recv_cycles is not None:
        recv = _item(instance.recv_cycles[0, 0])
    else:
        recv = _link_cycles(instance, cluster.host_recv, instance.in_bytes[0])
    if instance.send_cycles is not None:
        send = _item(instance.send_cycles[-1, n])
    else:
        send = _link_cycles(instance, cluster.host_send, instance.out_bytes[n])
    return recv + send


def plain(value: Number | Fraction) -> Number:
    """Return a Fraction, int or float as an int when it is one, else as a float."""
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return int(value) if isinstance(value, int) else float(value)


def _link_cycles(instance: PartitionData, link: Link | None, nbytes: int) -> Number:
    if link is None:
        return 0
    cycles = link.idle + int(nbytes) / (link.GBps * 2**30 / instance.cluster.clock)
    return int(cycles) if instance.whole else cycles


def _item(value: np.generic) -> Number:
    number: Number = value.item()
    return number
