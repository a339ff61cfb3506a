"""Layouts of stages on devices, and what `auto` makes of them in seconds of CPU.

Stages are those of GPTs: all a few percent apart, the first a little longer and the last more so,
with latencies of 2 percent of what a device does for an F; p devices, m microbatches, objective
makespan.

chain      a stage a device
rounds     v = 2 or 4 stages a device, dealt out in rounds; `fused`: B and W in one
V          2 stages a device, there and back
two-way    a chain and its mirror image, each with half of the microbatches
tight      chains with room for fewer F's than the first stage of 1F1B holds; `drawn`: stages and
           latencies at random, each stage's B and W within 5 percent of a draw for all

All others have room for what the first stage of 1F1B holds: p F's of everything a device has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import stagepack as sp
from stagepack.heuristics.schedule.rules import RULES, apply
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule
from stagepack.result import Result

LATENCY = 20
LARGEST = 8_000
"""Operations of the largest instance of the table."""

SIZES = ((4, (1, 2, 4, 8)), (8, (1, 2, 4, 8)), (16, (1, 2)), (32, (1,)))
"""Devices, and microbatches for each of them."""

TIGHT = ((5, 4, 19), (6, 4, 24), (6, 5, 24), (7, 5, 28), (8, 5, 28), (8, 6, 28))
"""Devices, F's that fit and microbatches of tight chains."""

LONGER = ((9, 5, 36), (9, 6, 32), (10, 6, 30), (12, 8, 36))
"""The same of those with B and W apart only."""

DRAWN = 16
"""Tight chains that are drawn."""


class Layout(NamedTuple):
    """One line of the table."""

    name: str
    p: int
    m: int
    instance: PipelineSchedule


def times(p: int, v: int, *, split: bool) -> tuple[Array, Array, Array | None]:
    """Return cycles of F, B and W of v stages on each of p devices, as of a GPT."""
    forward = np.full(p * v, 1000 / v)
    forward[0] += 80
    forward[-1] += 350
    forward = (forward * np.random.default_rng([p, v]).uniform(0.98, 1.02, p * v)).astype(int)
    backward, weight = (forward * 1.05).astype(int), (forward * 0.85).astype(int)
    return (forward, backward, weight) if split else (forward, backward + weight, None)


def gpt(p: int, v: int, m: int, *, split: bool = True, **more: Any) -> PipelineSchedule:
    """Return v stages on each of p devices, in rounds unless `more` has `devices`."""
    return PipelineSchedule.from_arrays(
        *times(p, v, split=split),
        microbatches=m,
        **{
            "devices": list(range(p)) * v,
            "latency": LATENCY,
            "memory_forward": 2,
            "memory_backward": -1 if split else -2,
            "memory_weight": -1 if split else 0,
            "name": f"GPT p={p} v={v} m={m}",
            **more,
        },
    )


def two_way(p: int, m: int) -> PipelineSchedule:
    """Return two chains on the same devices in opposite order, each with half of m."""
    line = list(range(p))
    columns = [column for column in times(p, 1, split=True) if column is not None]
    forward, backward, weight = (np.tile(column, 2) for column in columns)
    edges = [(s, s + 1) for s in itertools.chain(range(p - 1), range(p, 2 * p - 1))]
    return PipelineSchedule.from_arrays(
        forward,
        backward,
        weight,
        microbatches=m // 2,
        devices=line + line[::-1],
        edges=edges,
        latency=LATENCY,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=2 * p,
        name=f"two-way GPT p={p} m={m}",
    )


def drawn(seed: int) -> Layout:
    """Return a tight chain of five to eight stages, with room for four to six F's."""
    rng = np.random.default_rng([15, seed])
    p = int(rng.integers(5, 9))
    fit, m = int(rng.integers(4, min(6, p - 1) + 1)), int(rng.integers(20, 41))
    forward = rng.uniform(800, 1200, p)
    backward, weight = (
        forward * rng.uniform(0.6, 1.6) * rng.uniform(0.95, 1.05, p) for _ in range(2)
    )
    instance = PipelineSchedule.from_arrays(
        *(cycles.astype(int) for cycles in (forward, backward, weight)),
        microbatches=m,
        latency=int(rng.uniform(0, 2 * LATENCY)),
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=2 * fit,
        name=f"drawn {seed}",
    )
    return Layout(f"tight {fit} drawn {seed}", p, m, instance)


def layouts() -> Iterator[Layout]:
    """Yield the lines of the table, small ones first."""
    for p, factors in SIZES:
        line = list(range(p))
        for m in (p * factor for factor in factors):
            found = {"chain": gpt(p, 1, m, limit=2 * p)}
            for v, split in itertools.product((2, 4), (True, False)):
                name = f"rounds v={v}{'' if split else ' fused'}"
                found[name] = gpt(p, v, m, split=split, limit=2 * p * v)
            found["V"] = gpt(p, 2, m, devices=line + line[::-1], limit=4 * p)
            found["two-way"] = two_way(p, m)
            for name, instance in found.items():
                if len(instance.operations) <= LARGEST:
                    yield Layout(name, p, m, instance)
    for split, (p, fit, m) in itertools.product((True, False), TIGHT):
        name = f"tight {fit}{'' if split else ' fused'}"
        yield Layout(name, p, m, gpt(p, 1, m, split=split, limit=2 * fit))
    for p, fit, m in LONGER:
        yield Layout(f"tight {fit}", p, m, gpt(p, 1, m, limit=2 * fit))
    yield from map(drawn, range(DRAWN))
    for objective, (p, fit, m) in itertools.product(("span",), TIGHT[::5]):
        yield Layout(
            f"tight {fit} {objective}",
            p,
            m,
            gpt(p, 1, m, limit=2 * fit, objective=objective),
        )


def rule_of(instance: PipelineSchedule) -> tuple[str, int | None]:
    """Return the rule that does best within the memory, and its value."""
    best: tuple[str, int | None] = ("-", None)
    for name, rule in RULES.items():
        solution, _ = (None, "") if rule.unsupported(instance) else apply(rule, instance)
        if solution is not None and not instance.check(solution):
            value = int(instance.evaluate(solution))
            if best[1] is None or value < best[1]:
                best = name, value
    return best


def at(result: Result[Any], seconds: float) -> tuple[int | None, int | None]:
    """Return the value and the bound that a run had after so many seconds."""
    values, bounds = (
        [event.value for event in events if event.time <= seconds]
        for events in (result.trace.incumbents, result.trace.bounds)
    )
    return (int(min(values)) if values else None), (int(max(bounds)) if bounds else None)


def line_of(layout: Layout, moments: tuple[float, ...], seed: int = 0) -> dict[str, Any]:
    """Return the line of a layout: one run, looked at in some moments."""
    instance = layout.instance
    rule, value = rule_of(instance)
    result = sp.solve(instance, "auto", time_limit=moments[-1], threads=1, seed=seed)
    entry: dict[str, Any] = {
        "layout": layout.name,
        "p": layout.p,
        "m": layout.m,
        "rule": rule,
        "its value": value or "-",
    }
    for moment in moments:
        found, bound = at(result, moment)
        gap = "-" if found is None or bound is None else f"{100 * (found - bound) / found:.2f}"
        entry |= {f"auto {moment:g} s": found or "-", f"gap % {moment:g} s": gap}
    return {
        **entry,
        "bound": result.bound,
        "bound by": result.bound_source,
        "seconds": f"{result.runtime:.1f}",
    }
