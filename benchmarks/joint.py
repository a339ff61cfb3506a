"""What plans lose by deciding level after level: cuts, schedule and stashes in one model.

    python -m benchmarks.joint [--seeds 10] [--limit 20]

Chains of 8 layers on 3 equal devices without links, 4 microbatches, training, with much memory and
with little.  The joint model is CP-SAT's; its cuts are scheduled once more by themselves, which
must take as long.

Sets         layers l, stages s = 0 .. k-1, microbatches i, ranges of layers [a, b)
Parameters   f, b of a range: cycles forward and backward; held: its weights; kept: the stashes of
             its layers and what it receives, for each microbatch in flight; M: memory of a device
Variables    y[s, a, b]: stage s is the range; start of F[s, i] and B[s, i]
Objective    the last end
Constraints  one range a stage, each begins where the one before ends; F[s, i] after F[s-1, i],
             B[s, i] after B[s+1, i] and F[s, i]; a device does one thing at a time; kept of all
             microbatches between the begin of F and the end of B, and held, are at most M
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

import stagepack as sp

LAYERS, STAGES, MICROBATCHES = 8, 3, 4
MEMORY = {"much": 200, "little": 62}


def chain(seed: int, memory: int) -> sp.PipelinePartition:
    """Return a chain of random layers."""
    rng = np.random.default_rng(seed)
    return sp.PipelinePartition.from_arrays(
        rng.integers(1, 20, LAYERS),
        devices=STAGES,
        backward=rng.integers(1, 30, LAYERS),
        exclusive=rng.integers(1, 9, LAYERS),
        stash=rng.integers(1, 8, LAYERS),
        in_bytes=rng.integers(1, 5, LAYERS + 1),
        capacity=memory,
        training=True,
        microbatches=MICROBATCHES,
        name=f"chain {seed}",
    )


@dataclass
class Joint:
    """The joint model of a chain."""

    instance: sp.PipelinePartition

    def __post_init__(self) -> None:
        given = self.instance
        self.model = cp_model.CpModel()
        self.horizon = MICROBATCHES * int(given.cycles.sum())
        self.ranges = list(itertools.combinations(range(LAYERS + 1), 2))
        self.y = [
            {part: self.model.new_bool_var(f"y{s}{part}") for part in self.ranges}
            for s in range(STAGES)
        ]
        self._cuts()
        for s in range(STAGES):
            self._stage(s)

    def _of(self, s: int, values: list[int]) -> cp_model.IntVar:
        """Return the value of the range that stage `s` is."""
        chosen = self.model.new_int_var(min(values), max(values), "")
        self.model.add(chosen == cp_model.LinearExpr.weighted_sum(list(self.y[s].values()), values))
        return chosen

    def _cuts(self) -> None:
        for s, own in enumerate(self.y):
            self.model.add_exactly_one(own.values())
            first, last = s == 0, s == STAGES - 1
            for (a, b), chosen in own.items():
                if (first and a > 0) or (last and b < LAYERS):
                    self.model.add(chosen == 0)
        for before, after in itertools.pairwise(self.y):
            for cut in range(1, LAYERS):
                ends = sum(chosen for (_, b), chosen in before.items() if b == cut)
                begins = sum(chosen for (a, _), chosen in after.items() if a == cut)
                self.model.add(ends == begins)

    def _stage(self, s: int) -> None:
        """Add the work of a stage after that of the stages before it, and its memory."""
        given, model = self.instance, self.model
        (held,) = given.exclusive.values()
        forward = self._of(s, [int(given.forward[a:b].sum()) for a, b in self.ranges])
        backward = self._of(s, [int(given.backward[a:b].sum()) for a, b in self.ranges])
        kept = self._of(
            s, [int(given.stash[a:b].sum() + given.in_bytes[a]) for a, b in self.ranges]
        )
        memory = given.cluster.devices[s].memory or 0
        room = self._of(s, [memory - int(held[a:b].sum()) for a, b in self.ranges])
        self.steps = getattr(self, "steps", {})
        work, flying = [], []
        for i in range(MICROBATCHES):
            for what, size in (("F", forward), ("B", backward)):
                begin, end = (model.new_int_var(0, self.horizon, "") for _ in range(2))
                work.append(model.new_interval_var(begin, size, end, ""))
                self.steps[what, s, i] = begin, end
                if i:
                    model.add(begin >= self.steps[what, s, i - 1][1])
            (begin, middle), (late, end) = self.steps["F", s, i], self.steps["B", s, i]
            model.add(late >= middle)
            if s:
                model.add(begin >= self.steps["F", s - 1, i][1])
                model.add(self.steps["B", s - 1, i][0] >= end)
            length = model.new_int_var(0, self.horizon, "")
            flying.append(model.new_interval_var(begin, length, end, ""))
        model.add_no_overlap(work)
        model.add_cumulative(flying, [kept] * MICROBATCHES, room)

    def solve(self, limit: float) -> tuple[str, int, int, sp.PipelineSolution | None]:
        """Return status, makespan, bound and cuts."""
        last = self.model.new_int_var(0, self.horizon, "last")
        self.model.add_max_equality(last, [end for _, end in self.steps.values()])
        self.model.minimize(last)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = limit
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return solver.status_name(status), 0, 0, None
        chosen = [part for own in self.y for part, var in own.items() if solver.value(var)]
        cuts = sp.PipelineSolution.in_order([0, *(end for _, end in chosen)])
        bound = round(solver.best_objective_bound)
        return solver.status_name(status), round(solver.objective_value), bound, cuts


def compare(seed: int, name: str, limit: float) -> str:
    """Return a line: the plan, the joint model, and what is lost."""
    instance = chain(seed, MEMORY[name])
    began = time.process_time()
    plan = sp.plan_model(instance, time_limit=limit / 4)
    planned = time.process_time() - began
    began = time.process_time()
    status, makespan, bound, cuts = Joint(instance).solve(limit)
    spent = time.process_time() - began
    if cuts is None:
        return f"{seed:4} {name:7} plan {plan.status}, joint {status}"
    loosest = instance.replace(microbatches=1)
    schedule = sp.PipelineSchedule.from_partition(
        loosest, cuts, microbatches=MICROBATCHES, split=False
    )
    alone = sp.solve(schedule, time_limit=limit)
    assert alone.objective is not None
    assert alone.objective <= makespan or status != "OPTIMAL", "the cuts by themselves take longer"
    assert plan.objective is None or plan.objective >= bound, "a plan below the joint bound"
    assert plan.bound is None or plan.bound <= makespan, "the bound on plans is above one"
    lost = "-" if plan.objective is None else f"{plan.objective / makespan - 1:6.1%}"
    return (
        f"{seed:4} {name:7} plan {plan.objective} ({plan.status}, {planned:.1f} s), joint "
        f"{makespan} ({status}, bound {bound}, {spent:.1f} s), lost {lost}"
    )


def main() -> None:
    """Print a line an instance."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of the joint model")
    given = parser.parse_args()
    for name in MEMORY:
        for seed in range(given.seeds):
            print(compare(seed, name, given.limit), flush=True)


if __name__ == "__main__":
    main()
