"""Solves the interval model on an engine, and forbids groups that cannot be placed.

The costs of the model assume that all buffers of a group can be placed, as in
:mod:`stagepack.heuristics.groups.dp`.  If a group of the solution cannot, it is excluded and the
model is solved again.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

from stagepack.contracts import Number
from stagepack.evidence import TOLD
from stagepack.formulations.groups import Milp
from stagepack.heuristics.groups.dp import Partition
from stagepack.instances.groups import GroupingSolution
from stagepack.methods import Settings
from stagepack.methods.groups.offering import offer
from stagepack.methods.models import paced, run_model
from stagepack.progress import Part, Progress
from stagepack.solvers import Engine

Boundaries = tuple[int, ...]


class Relaxed(Part[Boundaries, GroupingSolution]):
    """A run of the model within a run of the method, `whole`, which gets its bounds if it `proves`
    them.
    """

    def __init__(
        self, partition: Partition, whole: Progress[GroupingSolution], proves: bool
    ) -> None:
        super().__init__(whole, partition.cycles, lambda _: (), on_bound=self._pass_on)
        self.partition, self._proves = partition, proves

    def _pass_on(self, bound: Number, source: str) -> None:
        """Hand a bound of the model on, where it is one of the instance."""
        if self._proves and self.partition.decided:
            self.whole.raise_bound(bound, source, TOLD)


def solve(
    partition: Partition,
    engine: Engine,
    progress: Progress[GroupingSolution],
    settings: Settings,
    *,
    proves: bool,
) -> bool:
    """Solve the model until all groups of its answer stand; return whether it has any answer.

    The engine starts from the solution of `progress`, if any.  If it `proves`, bounds of the model
    are bounds of the instance.  Raises `Stopped` once the clock says no.
    """
    while True:
        for b in range(1, partition.instance.n + 1):
            partition.ends(b)
        inner = Relaxed(partition, progress, proves)
        _run(inner, engine, settings)
        progress.engine, progress.reason = inner.engine, inner.reason
        if inner.interrupted:
            progress.interrupt()
        if inner.solution is None:
            return inner.infeasible_reason is None
        standing = [partition.stands(a, b) for a, b in pairwise(inner.solution)]
        if all(standing):
            found = partition.solution(inner.solution)
            offer(progress, found, f"{engine.name} (milp)", partition.tuning)
            return True
        progress.require_time()


def _run(inner: Relaxed, engine: Engine, settings: Settings) -> None:
    """Solve the model once, from the best plan known."""
    partition, known = inner.partition, inner.whole.solution
    start = None if known is None or known.order else known.boundaries
    upper = None if inner.whole.objective is None else int(inner.whole.objective)
    overdue = partition.tuning.models.overdue
    run_model(
        engine,
        partial(Milp, partition, upper=upper, cp_sat=engine.name == "cp-sat"),
        "milp",
        inner,
        paced(settings, engine, inner.remaining),
        start=start,
        start_value=None if start is None else partition.cycles(start),
        overdue=overdue * inner.remaining if settings.deterministic else math.inf,
        conclude_infeasible=partial(inner.prove_infeasible, "no groups"),
    )
