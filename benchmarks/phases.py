"""Phase scheduling: rules beside the optimum, recomputation, and the time of the exact search.

    python -m benchmarks.phases [--quick] [--limit 60] [--networks bert-base,gpt2-small]

First table: every method on the networks of the catalog, on a chip like the GC200, training and
inference: cycles a sample and the ratio to the best bound.  Second: recomputation within one phase,
proved or not, and against checkpoints at every square root.  Third: seconds of the exact search
over all microbatches and numbers of I/O tiles.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.phases import PhaseSchedule
from stagepack.result import Result

NETWORKS = ("bert-base", "bert-large", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")
TABLED = ("greedy-head", "layer-per-phase", "keep-all", "sqrt-checkpoint", "dp", "enumerate",
          "milp", "cp-sat", "auto")  # fmt: skip


def solved(instance: PhaseSchedule, method: str, limit: float) -> Result[Any] | str:
    """Return the result, or why the method does not apply."""
    reason = next(i.reason for i in sp.methods(instance) if i.name == method)
    if reason:
        return reason
    try:
        return sp.solve(instance, method, time_limit=limit)
    except InputError as error:
        return str(error)


def networks(names: tuple[str, ...], methods: tuple[str, ...], limit: float) -> None:
    """Print cycles a sample of every method, and their ratio to the best bound of all."""
    print(f"{'network':<24}{'method':<18}{'status':<12}{'cycles/sample':>15}{'ratio':>8}"
          f"{'seconds':>9}  phases, I/O tiles")  # fmt: skip
    for name in names:
        for training in (True, False):
            instance = sp.load(f"phases/{name}", training=training)
            results = {method: solved(instance, method, limit) for method in methods}
            bounds = [
                result.bound
                for result in results.values()
                if not isinstance(result, str) and result.bound is not None
            ]
            bound = max(bounds)
            for method, result in results.items():
                if isinstance(result, str):
                    continue
                line = f"{instance.name:<24}{method:<18}{result.status!s:<12}"
                if result.solution is None:
                    print(f"{line}{'-':>15}{'-':>8}{result.runtime:>9.2f}  {result.reason[:60]}")
                    continue
                each = result.objective / instance.global_batch
                phases = len(result.solution.mode)
                print(f"{line}{each:>15,.0f}{result.objective / bound:>8.3f}"
                      f"{result.runtime:>9.2f}  {phases}, {result.solution.io_tiles}",
                      flush=True)  # fmt: skip


def recomputation(sizes: tuple[int, ...], seeds: int, limit: float) -> None:
    """Print what is proved of recomputation within one phase."""
    print(f"\n{'recomputation':<26}{'seed':<6}{'status':<11}{'best':>8}{'bound':>8}{'gap':>8}"
          f"{'seconds':>9}{'sqrt':>8}{'sqrt gap':>10}")  # fmt: skip
    for kind in ("chain-remat", "skip-remat"):
        for layers in sizes:
            for seed in range(seeds):
                instance = sp.load(f"phases/random/{kind}", layers=layers, seed=seed)
                result = sp.solve(instance, "auto", time_limit=limit)
                rule = sp.solve(instance, "sqrt-checkpoint")
                gap = "-" if result.gap is None else f"{result.gap:.2%}"
                value = "-" if rule.objective is None else f"{rule.objective}"
                apart = "-"
                if rule.objective is not None and result.bound is not None:
                    apart = f"{(rule.objective - result.bound) / rule.objective:.2%}"
                print(f"{instance.name:<26}{seed:<6}{result.status!s:<11}{result.objective!s:>8}"
                      f"{result.bound!s:>8}{gap:>8}{result.runtime:>9.2f}{value:>8}{apart:>10}",
                      flush=True)  # fmt: skip


def drawn(layers: int, training: bool, policies: tuple[str, ...], prefetch: bool) -> PhaseSchedule:
    """Return a random chain with 64 numbers of I/O tiles and 10 microbatches to choose from."""
    rng = np.random.default_rng(0)
    return PhaseSchedule.from_arrays(
        rng.integers(10**6, 10**7, layers),
        rng.integers(10**3, 10**5, layers),
        rng.integers(10**4, 10**6, layers + 1),
        backward=rng.integers(10**3, 2 * 10**5, layers) if training else None,
        tape=rng.integers(10**4, 10**6, layers),
        training=training,
        policies=policies,
        prefetch=prefetch,
        memory=10**8,
        tiles=1472,
        io_tiles=(32, 95),
        remote_bandwidth=11.87,
        host_bandwidth=2.355,
        tile_bandwidth=4,
        startup=1000,
        global_batch=512,
        name=f"chain-{layers}",
    )


def growth(sizes: tuple[int, ...], limit: float) -> None:
    """Print seconds of the exact search over all pairs."""
    print(f"\n{'all pairs':<14}{'what':<34}{'status':<11}{'seconds':>9}")
    cases = (
        (False, ("stash",), False, "inference"),
        (False, ("stash",), True, "inference, prefetching"),
        (True, ("stash",), False, "training"),
        (True, ("stash",), True, "training, prefetching"),
        (True, ("stash", "keep", "recompute"), False, "training, all policies"),
    )
    for layers in sizes:
        for training, policies, prefetch, what in cases:
            instance = drawn(layers, training, policies, prefetch)
            result = sp.solve(instance, "enumerate", time_limit=limit)
            print(f"{instance.name:<14}{what:<34}{result.status!s:<11}{result.runtime:>9.2f}",
                  flush=True)  # fmt: skip


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller instances")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each run")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--methods", default=",".join(TABLED))
    parser.add_argument("--only", choices=("networks", "recomputation", "growth"))
    given = parser.parse_args()
    print("versions:", ", ".join(f"{k} {v}" for k, v in sp.versions().items()))
    if given.only in (None, "networks"):
        networks(tuple(given.networks.split(",")), tuple(given.methods.split(",")), given.limit)
    if given.only in (None, "recomputation"):
        recomputation((20, 40) if given.quick else (20, 40, 60, 80, 130, 200),
                      1 if given.quick else 2, given.limit)  # fmt: skip
    if given.only in (None, "growth"):
        growth((100,) if given.quick else (100, 300), given.limit)


if __name__ == "__main__":
    main()
