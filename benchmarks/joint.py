"""The loss of deciding a plan level by level, against one model that decides all levels together.

    python -m benchmarks.joint [--seeds 10] [--limit 20] [--layers 8] [--samples 8]

The instances are chains in training on 3 equal devices without links, with much and with little
memory.  A step has `--samples` samples in 2, 4 or 8 microbatches.  A layer takes some cycles for
each sample and some for each microbatch, so that fewer microbatches need less work but longer
waits.  A plan is made for each number of microbatches; the joint model (CP-SAT) chooses the number.
As a check, a schedule for the cuts of the joint model is computed separately, and must take as
long. The table also has a plan without feedback between levels: the smallest bottleneck with memory
for all stashes, and then its schedule.

Sets         layers l, stages s = 0 .. k-1, numbers of microbatches m, microbatches i, ranges of
             layers [a, b)
Parameters   f, b of a range for each m: cycles forward and backward; held: its weights; kept: the
             stashes of its layers and what it receives, for each microbatch in flight; M: memory
             of a device
Variables    z[m]: so many microbatches; y[s, a, b]: stage s is the range; start of F[s, i], B[s, i]
Objective    the last end
Constraints  one m, and one range a stage, each begins where the one before ends; of microbatches
             those below m are there; F[s, i] after F[s-1, i], B[s, i] after B[s+1, i] and F[s, i];
             a device does one thing at a time; kept of all microbatches between the begin of F and
             the end of B, and held, are at most M
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

import stagepack as sp

STAGES = 3
NUMBERS = (2, 4, 8)
MEMORY = {"much": 400, "little": 75}
"""Bytes of a device for 8 layers."""


def chains(seed: int, memory: int, layers: int, samples: int) -> dict[int, sp.PipelinePartition]:
    """Return a chain of random layers by the number of microbatches of a step."""
    rng = np.random.default_rng(seed)
    forward, backward, stash = (rng.integers(1, most, layers) for most in (10, 16, 5))
    moved, held = rng.integers(1, 4, layers + 1), rng.integers(1, 9, layers)
    fixed = rng.integers(0, 12, (2, layers))
    found = {}
    for many in NUMBERS:
        if samples % many:
            continue
        each = samples // many
        found[many] = sp.PipelinePartition.from_arrays(
            each * forward + fixed[0],
            devices=STAGES,
            backward=each * backward + fixed[1],
            exclusive=held,
            stash=each * stash,
            in_bytes=each * moved,
            capacity=memory * layers // 8,
            training=True,
            microbatches=many,
            name=f"chain {seed}",
        )
    return found


@dataclass
class Joint:
    """The joint model of a chain, given for each number of microbatches."""

    given: dict[int, sp.PipelinePartition]

    def __post_init__(self) -> None:
        self.model = cp_model.CpModel()
        self.most = max(self.given)
        self.any = self.given[self.most]
        self.horizon = max(m * int(chain.cycles.sum()) for m, chain in self.given.items())
        self.ranges = list(itertools.combinations(range(self.any.n + 1), 2))
        self.z = {m: self.model.new_bool_var(f"z{m}") for m in self.given}
        self.model.add_exactly_one(self.z.values())
        self.there = [self.model.new_bool_var(f"there{i}") for i in range(self.most)]
        for i, there in enumerate(self.there):
            self.model.add(there == sum(chosen for m, chosen in self.z.items() if m > i))
        self.y = [
            {part: self.model.new_bool_var(f"y{s}{part}") for part in self.ranges}
            for s in range(STAGES)
        ]
        self.begins: dict[tuple[str, int, int], cp_model.IntVar] = {}
        self.ends: dict[tuple[str, int, int], cp_model.IntVar] = {}
        self._cuts()
        for s in range(STAGES):
            self._stage(s)

    def _of(self, s: int, values: dict[int, list[int]]) -> cp_model.IntVar:
        """Return the value of the range that stage `s` is, for the number of microbatches."""
        low, high = min(map(min, values.values())), max(map(max, values.values()))
        chosen = self.model.new_int_var(low, high, "")
        for m, own in values.items():
            worth = cp_model.LinearExpr.weighted_sum(list(self.y[s].values()), own)
            self.model.add(chosen == worth).only_enforce_if(self.z[m])
        return chosen

    def _sums(self, s: int, column: str) -> cp_model.IntVar:
        """Return the sum of a column over the layers of stage `s`."""
        sums = {m: getattr(chain, column) for m, chain in self.given.items()}
        return self._of(
            s, {m: [int(own[a:b].sum()) for a, b in self.ranges] for m, own in sums.items()}
        )

    def _cuts(self) -> None:
        layers = self.any.n
        for s, own in enumerate(self.y):
            self.model.add_exactly_one(own.values())
            first, last = s == 0, s == STAGES - 1
            for (a, b), chosen in own.items():
                if (first and a > 0) or (last and b < layers):
                    self.model.add(chosen == 0)
        for before, after in itertools.pairwise(self.y):
            for cut in range(1, layers):
                ends = sum(chosen for (_, b), chosen in before.items() if b == cut)
                begins = sum(chosen for (a, _), chosen in after.items() if a == cut)
                self.model.add(ends == begins)

    def _stage(self, s: int) -> None:
        """Add the work of a stage after that of the stages before it, and its memory."""
        model = self.model
        (held,) = self.any.exclusive.values()
        sizes = (("F", self._sums(s, "forward")), ("B", self._sums(s, "backward")))
        kept = self._of(
            s,
            {
                m: [int(chain.stash[a:b].sum() + chain.in_bytes[a]) for a, b in self.ranges]
                for m, chain in self.given.items()
            },
        )
        memory = self.any.cluster.devices[s].memory or 0
        left = [memory - int(held[a:b].sum()) for a, b in self.ranges]
        room = self._of(s, dict.fromkeys(self.given, left))
        work, flying = [], []
        for i, there in enumerate(self.there):
            for what, size in sizes:
                begin, end = (model.new_int_var(0, self.horizon, "") for _ in range(2))
                work.append(model.new_optional_interval_var(begin, size, end, there, ""))
                self.begins[what, s, i], self.ends[what, s, i] = begin, end
                if i:
                    model.add(begin >= self.ends[what, s, i - 1])
            model.add(self.begins["B", s, i] >= self.ends["F", s, i])
            if s:
                model.add(self.begins["F", s, i] >= self.ends["F", s - 1, i])
                model.add(self.begins["B", s - 1, i] >= self.ends["B", s, i])
            begin, end = self.begins["F", s, i], self.ends["B", s, i]
            length = model.new_int_var(0, self.horizon, "")
            flying.append(model.new_optional_interval_var(begin, length, end, there, ""))
        model.add_no_overlap(work)
        model.add_cumulative(flying, [kept] * self.most, room)

    def solve(self, limit: float) -> tuple[str, int, int, int, sp.PipelineSolution | None]:
        """Return status, makespan, bound, microbatches and cuts."""
        last = self.model.new_int_var(0, self.horizon, "last")
        for end in self.ends.values():
            self.model.add(last >= end)
        self.model.minimize(last)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = limit
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return solver.status_name(status), 0, 0, 0, None
        (many,) = (m for m, chosen in self.z.items() if solver.value(chosen))
        chosen = [part for own in self.y for part, var in own.items() if solver.value(var)]
        cuts = sp.PipelineSolution.in_order([0, *(end for _, end in chosen)])
        bound = round(solver.best_objective_bound)
        return solver.status_name(status), round(solver.objective_value), bound, many, cuts


def straight(instance: sp.PipelinePartition, limit: float) -> int | None:
    """Return the step of the partition with the least bottleneck; None where none has room."""
    whole = instance.replace(microbatches=min(instance.microbatches, STAGES))
    cut = sp.solve(whole, time_limit=limit)
    if cut.solution is None:
        return None
    try:
        schedule = sp.PipelineSchedule.from_partition(
            instance, cut, microbatches=instance.microbatches, split=False
        )
    except sp.InputError:
        return None
    made = sp.solve(schedule, time_limit=limit).objective
    return None if made is None else int(made)


def compare(seed: int, name: str, given: argparse.Namespace) -> str:
    """Return a line: the best plan, the joint model, and what is lost."""
    every = chains(seed, MEMORY[name], given.layers, given.samples)
    began = time.process_time()
    plans = {m: sp.plan_model(chain, time_limit=given.limit / 4) for m, chain in every.items()}
    planned = time.process_time() - began
    began = time.process_time()
    status, makespan, bound, many, cuts = Joint(every).solve(given.limit)
    spent = time.process_time() - began
    made = {m: plan.objective for m, plan in plans.items() if plan.objective is not None}
    if cuts is None:
        told = ", ".join(sorted({str(plan.status) for plan in plans.values()}))
        return f"{seed:4} {name:7} plans {told}, joint {status}"
    loosest = every[many].replace(microbatches=1)
    schedule = sp.PipelineSchedule.from_partition(loosest, cuts, microbatches=many, split=False)
    alone = sp.solve(schedule, time_limit=given.limit)
    assert alone.objective is not None
    assert alone.objective <= makespan or status != "OPTIMAL", "the cuts by themselves take longer"
    own = min((plan.bound for plan in plans.values() if plan.bound is not None), default=0)
    assert own <= makespan, "all bounds on plans are above one"
    if not made:
        return f"{seed:4} {name:7} no plan, joint {makespan} ({status}, m {many})"
    best = min(made, key=lambda m: made[m])
    passes = [straight(chain, given.limit / 4) for chain in every.values()]
    once = min((value for value in passes if value is not None), default=None)
    straight_on = "none" if once is None else f"{once} lost {once / makespan - 1:.1%}"
    assert made[best] >= bound, "a plan below the joint bound"
    return (
        f"{seed:4} {name:7} plan {made[best]} (m {best}, {plans[best].status}, {planned:.1f} s), "
        f"joint {makespan} (m {many}, {status}, bound {bound}, {spent:.1f} s), "
        f"lost {made[best] / makespan - 1:.1%}; without looking back {straight_on}"
    )


def main() -> None:
    """Print a line an instance."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of the joint model")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="of a step")
    given = parser.parse_args()
    for name in MEMORY:
        for seed in range(given.seeds):
            print(compare(seed, name, given), flush=True)


if __name__ == "__main__":
    main()
