"""Soak: plans of random small models, against all their partitions.

    python -m benchmarks.soak_plans --plans 200 --seed 0

The models are networks of operators on chips with local memory, cut as chains and as graphs, in
inference and in training, with and without enough memory for all stashes.  Every plan must be
valid, and no partition may have a shorter step than the bound of the plan.  The exit code is 1 if
one has.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any

import numpy as np

import stagepack as sp
from stagepack.instances.groups import Operator, OperatorKind, Source, Weight
from stagepack.instances.groups.backward import backward, with_stash
from stagepack.instances.groups.chips import preset
from stagepack.instances.groups.stage import as_chain, as_graph, stage_backward, stage_groups
from stagepack.planning import Level, ModelPlan
from stagepack.planning.stages import Structure
from stagepack.planning.tries import expressed

CHIP = preset("cv184x")
LIMIT = 2.0
"""Seconds of a question."""


def network(rng: np.random.Generator) -> sp.LayerGrouping:
    """Return convolutions, poolings, sums, joins and activations with branches."""
    rows, channels = int(rng.integers(4, 17)), int(rng.choice([8, 16, 32]))
    shapes: dict[str, tuple[int, int, int, int]] = {"x": (1, channels, rows, rows)}
    operators: list[Operator] = []
    for at in range(int(rng.integers(3, 6))):
        name = f"o{at}"
        read = str(rng.choice(list(shapes)[-2:]))
        n, c, h, w = shapes[read]
        alike = [one for one in shapes if shapes[one] == shapes[read] and one != read]
        kind = str(rng.choice(["conv", "conv", "sum", "pool", "rows", "concat", "up"]))
        given: dict[str, Any] = {}
        if kind in ("sum", "concat") and alike:
            other = str(rng.choice(alike))
            shape = (n, 2 * c, h, w) if kind == "concat" else (n, c, h, w)
            word = "concat" if kind == "concat" else "elementwise"
            adds = kind == "sum" and bool(rng.integers(2))
            given = {"kind": OperatorKind(word), "inputs": (read, other), "adds": adds}
        elif kind == "pool" and h >= 4:
            shape = (n, c, h // 2, w // 2)
            given = {"kind": OperatorKind.POOL, "kernel": (2, 2), "stride": (2, 2)}
        elif kind == "up" and h <= 8:
            shape = (n, c, 2 * h, 2 * w)
            given = {"kind": OperatorKind.UPSAMPLE, "scale": (2, 2)}
        elif kind == "rows":
            shape = (n, c, h, w)
            given = {"kind": OperatorKind.ROWS, "whole": "c", "passes": 4}
        else:
            wide = int(rng.choice([8, 16]))
            shape = (n, wide, h, w)
            given = {
                "kind": OperatorKind.CONV, "kernel": (3, 3), "padding": (1, 1, 1, 1),
                "weights": (Weight(channels=wide, values=9 * c),),
            }  # fmt: skip
        operators.append(Operator(**{"name": name, "inputs": (read,), "shape": shape, **given}))
        shapes[name] = shape
    return sp.LayerGrouping.from_arrays(
        operators, [Source(name="x", shape=shapes["x"])], chip=CHIP, name="random"
    )


def steps(
    whole: sp.LayerGrouping, graph: bool, training: bool, split: bool, m: int, cluster: sp.Cluster
) -> list[float]:
    """Return the steps of all partitions with the best groups of their stages.

    Parameters
    ----------
    whole : LayerGrouping
    graph, training, split : bool
    m : int
        Microbatches.
    cluster : Cluster
    """
    back = backward(whole) if training else None
    model: Any = (as_graph if graph else as_chain)(whole, cluster, back)
    stored = whole if back is None else with_stash(whole, back.stash)
    loose = model.replace(microbatches=1)
    first, made, known = sp.solve(loose, time_limit=LIMIT), [], dict[str, sp.Result[Any]]()
    for chosen in itertools.product(range(len(cluster)), repeat=whole.n):
        place = np.array(chosen)
        if graph:
            solution: Any = sp.GraphSolution.of(loose, np.tile(place, 1 + training))
        elif (np.diff(place) < 0).any() or len(set(chosen)) < len(cluster):
            continue
        else:
            cuts = np.searchsorted(place, range(len(cluster) + 1))
            solution = sp.PipelineSolution.in_order(tuple(cuts.tolist()))
        if first.solution is None or loose.check(solution):
            continue
        cut = Level("partition", loose, expressed(loose, solution, first))
        inside, bare = {}, Structure(cut, {}, m, split=split)
        for at in range(len(bare.places)):
            members, name = bare.operators(at)
            behind = None if back is None else stage_backward(back, members, name)
            for which, part in enumerate((stage_groups(stored, members, name), behind)):
                if part is not None:
                    if part.digest not in known:
                        known[part.digest] = sp.solve(part, time_limit=LIMIT)
                    inside[at, bool(which)] = Level(name, part, known[part.digest])
        if all(level.result.solution is not None for level in inside.values()):
            schedule = Structure(cut, inside, m, split=split).schedule()
            found = sp.solve(schedule, time_limit=LIMIT)
            if found.objective is not None:
                made.append(float(found.objective))
    return made


def complaint(plan: ModelPlan, made: list[float]) -> str:
    """Return what is wrong with a plan, "" for nothing.

    Parameters
    ----------
    plan : ModelPlan
    made : list of float
        Steps of all partitions.
    """
    broken = plan.check()
    if broken:
        return str(broken[0])
    if plan.bound is not None and made and plan.bound > min(made):
        return f"bound {plan.bound:,} above a step of {min(made):,.0f}"
    if plan.status == "INFEASIBLE" and made:
        return f"there is a step of {min(made):,.0f}"
    return ""


def main() -> int:
    """Run the soak; return 1 for a plan that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plans", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wrong, gaps, best = 0, [], []
    for seed in range(given.seed, given.seed + given.plans):
        rng = np.random.default_rng(seed)
        whole = network(rng)
        graph, training = bool(rng.integers(2)), bool(rng.integers(2))
        split = training and bool(rng.integers(2))
        m, k = int(rng.integers(1, 6)), int(rng.integers(1, 3))
        memory = int(rng.choice([2**14, 2**15, 2**17, 2**30]))
        cluster = sp.Cluster.uniform(k, memory=memory)
        said: dict[str, Any] = {"microbatches": m, "training": training, "split": split}
        plan = sp.plan_model(whole, cluster, graph=graph, time_limit=LIMIT, **said)
        made = steps(whole, graph, training, split, m, cluster)
        trouble = complaint(plan, made)
        if trouble:
            wrong += 1
            print(f"seed {seed}: {trouble} ({graph=}, {said}, {k=}, {memory=})", flush=True)
        if plan.objective is not None and plan.gap is not None and made:
            gaps.append(plan.gap)
            best.append(plan.objective / min(made) - 1)
    if gaps:
        print(
            f"{given.plans} plans, {len(gaps)} made, {wrong} wrong; gap {np.median(gaps):.1%} in "
            f"the median, at most {max(gaps):.1%}; above the best partition by "
            f"{np.mean(best):.2%} on average, at most {max(best):.1%}"
        )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
