"""Bounds from how long devices hold what a microbatch leaves: closed queues.

From the start of an F to the end of its B a microbatch goes to the end of the pipeline and back,
and holds memory for at least as long.  A device that must hold so much for so long within its limit
needs time, however its operations are ordered.

Cost: O(p + edges).  Source: own work; Little's law, as lifespans and peaks in Qi et al. 2024,
Pipeline parallelism with controllable memory (arXiv 2405.15362).
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd

import numpy as np

from stagepack.heuristics.schedule.effort import Looks
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule

STAGE = 1_500
"""Steps of a stage."""


def round_trips(instance: PipelineSchedule, looks: Looks) -> Array:
    """Return the least cycles from the start of F of each stage to that of its B, int64 (p,).

    For instances with B's.  `looks` asks the clock after every stage.
    """
    assert instance.backward is not None
    trip = np.zeros(instance.p, dtype=np.int64)
    consumers, first = instance.consumers, instance.consumers.first.tolist()
    for s in reversed(instance.order):
        here = slice(first[s], first[s + 1])
        then = consumers.stage[here]
        ways = trip[then] + instance.backward[then] + 2 * consumers.lag[here]
        trip[s] = instance.forward[s] + ways.max(initial=0)
        looks.at(STAGE + len(then))
    return trip


def _entries(instance: PipelineSchedule, looks: Looks) -> Array:
    """Return the least cycles before the first F of each stage, int64 (p,)."""
    entry = np.zeros(instance.p, dtype=np.int64)
    producers, first = instance.producers, instance.producers.first.tolist()
    for s in instance.order:
        here = slice(first[s], first[s + 1])
        before = producers.stage[here]
        ways = entry[before] + instance.forward[before] + producers.lag[here]
        entry[s] = ways.max(initial=0)
        looks.at(STAGE + len(before))
    return entry


def queue_bound(instance: PipelineSchedule, looks: Looks | None = None) -> int:
    """Return the least objective value of any device that holds what it must for as long; or 0.

    Of a device of limit M, a microbatch holds what its F takes for a round trip and B, and what B
    leaves for W: *area* is the sum of bytes times cycles.  At most M is held at any time; in the
    first t cycles at most what F's can take in t, and that of one more; in the last t cycles at
    most what B's and W's can release in t, and that of one more.  So from the first F to the last
    release pass at least area / M cycles, and what both ramps leave out, if they do not overlap.
    Stages whose B or W takes memory, or that keep some, are left out: they hold no less than
    nothing.  `looks` asks the clock between stages.
    """
    looks = looks or Looks()
    if instance.limit is None or instance.backward is None:
        return 0
    trip = round_trips(instance, looks)
    entry = _entries(instance, looks)
    best = 0
    for device, limit in enumerate(instance.limit.tolist()):
        stages = [s for s in instance.stages_of(device) if _releases(instance, s)]
        looks.at(STAGE * len(instance.stages_of(device)))
        span = _held(instance, stages, limit, trip)
        if span:
            begin = int(entry[stages].min()) if instance.objective is Objective.MAKESPAN else 0
            best = max(best, begin + span + int(instance.after[device]))
    return best


def _releases(instance: PipelineSchedule, stage: int) -> bool:
    """Return whether F alone takes memory, and all of it is given back."""
    f, b, w = instance.changes(stage)
    return f > 0 >= max(b, w) and f + b + w == 0


def _held(instance: PipelineSchedule, stages: list[int], limit: int, trip: Array) -> int:
    """Return the least cycles from the first F of `stages`, on one device, to the last release.

    `stages` are those that :func:`_releases`, `limit` is that of the device, and `trip`, int64
    (p,), of :func:`round_trips`.
    """
    assert instance.backward is not None
    area = unit = most_taken = most_given = 0
    taking = giving = Fraction(0)  # bytes a cycle at most
    for s in stages:
        f, b, w = instance.changes(s)
        back = int(instance.backward[s])
        late = int(instance.weight[s]) if instance.weight is not None else 1
        each = f * (int(trip[s]) + back) + (f + b) * late
        area += int(instance.microbatches[s]) * each
        unit = gcd(unit, f, b, w)
        taking = max(taking, Fraction(f, int(instance.forward[s])))
        giving = max(giving, Fraction(-b, back), Fraction(-w, late))
        most_taken, most_given = max(most_taken, f), max(most_given, -b, -w)
    full = limit // unit * unit if stages else 0
    if not full:
        return 0
    up, down = max(0, full - most_taken), max(0, full - most_given)
    left_out = (up * up / taking + down * down / giving) / 2
    cycles = (area + left_out) / full
    if cycles < up / taking + down / giving:  # the device need never be full
        cycles = Fraction(area, full)
    return ceil(cycles)
