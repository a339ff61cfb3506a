"""Plans of whole models, tuning, and Pareto fronts: bounds, and how much work they save.

    python -m benchmarks.planning [--limit 5]

First table: networks of the catalog on pods, in inference and training, with one sample in each
microbatch: cycles of a step, bound on the cycles of all plans, CPU seconds.  Second table: number
of plans that tuning computes with bounds, and with bisection in every point of the grid.  Third
table: Pareto fronts of one instance of each kind; two points of each are solved again, with the
limit of this point.  The loss of deciding level by level is measured by benchmarks/joint.py.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import stagepack as sp
from stagepack.instances.tradeoffs import axis

NETWORKS = ("bert-large", "gpt2-xl", "resnet-50")
PODS = ("ipu-pod4", "ipu-pod16")
FRONTS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("pipeline/bert-large", "memory", {}),
    ("graph/random/branchy", "memory", {"operators": 12}),
    ("schedule/unlike", "memory", {}),
    ("phases/random/heterogeneous", "remote-memory", {"layers": 4}),
)
FRONT = 12
"""Times the limit of a question that a front may take."""


def network(name: str, **given: object) -> sp.PipelinePartition:
    """Return a network of the catalog as a chain."""
    found = sp.load(f"pipeline/{name}", **given)
    assert isinstance(found, sp.PipelinePartition)
    return found


def plans(limit: float) -> None:
    """Print plans of networks."""
    print(
        f"{'network':12}{'pod':11}{'':10}{'status':11}{'cycles':>14}{'bound':>14}{'gap':>8}{'CPU':>7}"
    )
    for name in NETWORKS:
        for pod in PODS:
            for training in (False, True):
                model = network(name, cluster=pod, training=training, batch=1)
                began = time.process_time()
                plan = sp.plan_model(model, time_limit=limit)
                assert plan.check() == ()
                spent = time.process_time() - began
                what = "training" if training else "inference"
                figures = "".join(
                    f"{'-' if value is None else format(value, ','):>14}"
                    for value in (plan.objective, plan.bound)
                )
                gap = "-" if plan.gap is None else f"{plan.gap:.1%}"
                print(f"{name:12}{pod:11}{what:10}{plan.status:11}{figures}{gap:>8}{spent:7.1f}")


def tuning(limit: float) -> None:
    """Print how many plans each way of tuning makes."""
    for training, most in ((False, 64), (True, 16)):
        options = {
            "batch": range(1, most + 1),
            "cluster": ["ipu-pod4", "ipu-pod8", "ipu-pod16"],
            "microbatches": [4, 16],
        }
        make = partial(network, "bert-large", training=training)
        print(f"\nbert-large, {'training' if training else 'inference'}")
        for search in ("bounds", "bisection"):
            found = sp.tune(make, options, "batch", search=search, time_limit=limit)
            assert found.best is not None
            print(
                f"  {search:10} {len(found.evaluations):4} plans of {found.configurations}, best "
                f"{found.best.throughput:,.1f} samples/s, {found.best.options}"
            )


def fronts(limit: float) -> None:
    """Print fronts, and solve their ends again."""
    print()
    for name, x, given in FRONTS:
        instance: sp.Instance = sp.load(name, **given)
        found = sp.pareto(instance, x, time_limit=FRONT * limit)
        agree = []
        for point in (found.points[0], found.points[-1]):
            within = axis(instance.kind, x).within(instance, max(1, point.x))
            again = sp.solve(within, time_limit=limit)
            agree.append(again.objective == point.y or not point.proved)
        print(
            f"{name:28} {len(found.points):3} points, {found.solves:3} solves, complete "
            f"{found.complete}, ends solved again agree: {all(agree)}"
        )


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=float, default=5.0, help="seconds of each question")
    limit = parser.parse_args().limit
    plans(limit)
    tuning(limit)
    fronts(limit)


if __name__ == "__main__":
    main()
