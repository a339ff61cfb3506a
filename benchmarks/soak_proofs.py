"""Soak: the verifier is asked to show what is not true, with evidence of all sorts.

    python -m benchmarks.soak_proofs --instances 2000 --seed 5000

Small random instances, one in four structured, are solved by trying everything.  Bounds above the
optimum are claimed, and that there is no solution: with the evidence of a result, of another one,
with evidence forged for a rule, and with all these changed at random.  What is shown though it is
false, or raises an exception, is printed; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import stagepack as sp
from benchmarks import soak_groups, soak_structured
from stagepack.contracts import JsonObject
from stagepack.instances.packing import Objective
from stagepack.planning import steps
from stagepack.verify import Claimed, UnprovedError, packing_misfit, verify
from tests import random_graphs, random_phases, random_pipelines, random_schedules
from tests.packing_cases import FEATURES, brute_force, random_packing
from tests.planning import test_steps
from tests.structured import EVERY, small
from tests.verify.mutations import mutated


def _packing(number: int) -> Any:
    rng = np.random.default_rng([53, number])
    features = rng.choice(FEATURES, int(rng.integers(0, 4))).tolist()
    return random_packing(rng, features=features, objective=list(Objective)[number % 5])


def _graph(number: int) -> Any:
    rng = np.random.default_rng([59, number])
    instance = random_graphs.random_instance(rng, int(rng.integers(1, 6)))
    idle = rng.random(instance.n) < rng.choice([0, 0.7])  # such nodes may follow others
    fields = {c: np.where(idle, 0, getattr(instance, c)) for c in ("time", "cpu_time", "memory")}
    return instance.replace(**fields)


def _least(instance: Any) -> float:
    found = brute_force(instance)
    return math.inf if found is None else float(instance.evaluate(found))


def _shortest(whole: Any) -> float:
    found = test_steps.shortest(whole)
    return math.inf if found is None else found


BEST = {**soak_structured.BEST, "packing": _least, "plans": _shortest}
DRAWN: dict[str, Callable[[int], Any]] = {
    "pipeline": lambda number: random_pipelines.random_instance(number + number // 4),
    "graph": _graph,
    "schedule": lambda number: random_schedules.random_schedule(number, most_orders=300),
    "phases": lambda number: random_phases.random_phases(number, layers=(1, 4)),
    "groups": lambda number: soak_groups.drawn(1, number)[0],
    "packing": _packing,
    "plans": lambda number: (test_steps.chain, test_steps.graph)[number % 2](number),
}


def forged(kind: str, instance: Any, draw: random.Random) -> Iterator[tuple[str, JsonObject]]:
    """Yield kinds of proof and evidence, for every rule that needs some."""
    match kind:
        case "packing":
            moments = range(int(instance.start.min()) - 1, int(instance.end.max()) + 2)
            yield "witness", {"rule": "load", "moment": draw.choice(moments)}
            members = draw.sample(range(instance.n), draw.randint(1, instance.n))
            yield "witness", {"rule": "clique", "members": members}
            yield "log", _log(instance, draw)
        case "pipeline":
            yield "witness", {"rule": "fill", "transfers": draw.sample(range(99), 5)}
        case "graph":
            yield "log", {"rule": "ideals", "light": draw.choice([0, 5, 10**9])}
            handed = [draw.randrange(12) for _ in instance.producer.tolist()]
            yield "witness", {"rule": "cut", "flow": [[a, -a] for a in handed]}
            times = [[at, draw.randrange(9)] for at in range(300) if draw.random() < 0.4]
            yield "dual", {"rule": "dual", "times": times}
        case "plans":
            nodes = range(instance.model.n)
            path = sorted(draw.sample(nodes, draw.randint(1, len(nodes))))
            yield "log", {"rule": "path", "path": path}
            yield "log", {"rule": "part", "proof": "log", "evidence": {"rule": "ideals"}}
            yield "log", {"rule": draw.choice(["labels", "schedules", "work", "networks"])}
        case "groups":
            levels: list[Any] = sorted(draw.choice([0, 50, 200, 999]) for _ in range(instance.n))
            levels[draw.randrange(instance.n)] = draw.choice([None, levels[-1]])
            yield "witness", {"rule": "potentials", "potentials": [0, *levels]}


def _log(instance: Any, draw: random.Random) -> JsonObject:
    """Return steps that follow one from the other, for a capacity that may be enough."""
    which = draw.sample(range(instance.n), instance.n)
    moments = sorted({*instance.start.tolist(), *(instance.end - 1).tolist()})
    capacity, steps = draw.randint(int(instance.size.max()), int(instance.size.sum())), []
    if instance.conflicts is None:
        alive = packing_misfit._alive(instance, which, moments, Claimed(None, math.inf))
        replay = packing_misfit.Replay(*packing_misfit._rounded(instance, which, capacity), alive)
        for step in (draw.randrange(6 * max(len(which), len(moments))) for _ in range(150)):
            with contextlib.suppress(UnprovedError):
                replay.take(step)
                steps.append(step)
    named = {"capacity": capacity, "buffers": which, "moments": moments}
    return {"rule": "misfit", **named, "steps": steps}


def _answered(kind: str, instance: Any) -> Any:
    """Return a result, or a plan: what has a proof."""
    if kind != "plans":
        return sp.solve(instance, time_limit=2, options={"proof": True})
    said = {"microbatches": instance.microbatches, "split": instance.split}
    return sp.plan_model(instance.model, time_limit=1, **said)


def soak(kind: str, number: int, last: dict[str, Any]) -> tuple[int, bool, int]:
    """Claim what is false of an instance; return how often, if its optimum is shown, and faults."""
    draw, wrong = random.Random(number), 0
    usual = number % EVERY or kind == "plans"
    instance = DRAWN[kind](number) if usual else small(kind, number)
    try:
        best, result = BEST[kind](instance), _answered(kind, instance)
    except (OverflowError, sp.InputError):
        return 0, False, 0
    rules = steps if kind == "plans" else None
    own = str(result.proof), result.evidence
    given = [*forged(kind, instance, draw), own, own, last.get(kind, own)]
    given += [(proof, mutated(evidence, draw)) for proof, evidence in given]
    last[kind] = own
    told = None if best == math.inf else int(best) if best == int(best) else best
    found = any(verify(instance, told, *one, rules=rules).shown for one in given)
    more = 3 * instance.tolerance
    least = best * (1 + more) + more if more else math.nextafter(best, math.inf)
    false = [least, (best + 1) * (1 + more), draw.choice([None, 2 * best + 2])] * (told is not None)
    for bound, (proof, evidence) in itertools.product(false, given):
        try:
            fault = f"is above {best}" * verify(instance, bound, proof, evidence, rules=rules).shown
        except Exception as error:
            fault = repr(error)
        if fault:
            wrong += 1
            print(f"{kind} {number}: {bound} by {proof} {evidence}: {fault}", flush=True)
    return len(false) * len(given), found, wrong


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=1_000, help="of each kind")
    parser.add_argument("--kind", choices=list(DRAWN), help="default: all")
    parser.add_argument("--seed", type=int, default=0, help="number of the first instance")
    given = parser.parse_args()
    last, wrong = dict[str, Any](), 0
    for kind in DRAWN if given.kind is None else [given.kind]:
        told = [soak(kind, given.seed + at, last) for at in range(given.instances)]
        claims, shown, faults = (sum(column) for column in zip(*told, strict=True))
        print(f"{kind:<9}{claims:>9,} false claims, {shown:,} optima shown: {faults} wrong")
        wrong += faults
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
