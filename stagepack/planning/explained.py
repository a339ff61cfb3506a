"""Explains a plan: what limits its speed, and what one change of the cluster would gain.

For each change the model is planned again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, a
from stagepack.instances.graph import GraphPartition
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.pipeline import Objective, PipelinePartition
from stagepack.instances.profile import Chip
from stagepack.instances.tradeoffs import tradeoffs
from stagepack.planning.model_plan import ModelPlan
from stagepack.planning.search import plan_model
from stagepack.planning.tries import QUESTIONS
from stagepack.report import format as as_text
from stagepack.report.pages import Chapter, chapter, with_pictures
from stagepack.report.table import Account, Head, Sheet
from stagepack.shown import Shown
from stagepack.solve import require_time
from stagepack.stopping import Stop
from stagepack.tradeoffs.changes import LEAST, Change, change, share

NETWORK = "network"
"""The level of plans whose stages have groups."""


@dataclass(frozen=True, repr=False)
class PlanExplanation(Shown):
    """What determines the time of a plan's step, and what changes of its cluster would gain.

    Attributes
    ----------
    plan : ModelPlan
    critical : tuple of (str, str)
        The device, stage, layer or limit that determines the step: its label and figures.
    changes : tuple of Change
        The changes that were tried; their results are plans.
    seconds : float
        Seconds spent on planning again.
    note : str
        The reason if there are no changes.
    """

    plan: ModelPlan
    critical: tuple[tuple[str, str], ...]
    changes: tuple[Change[ModelPlan], ...]
    seconds: float
    note: str = ""

    def to_dict(self) -> JsonObject:
        """Return everything but the levels of plans as plain JSON data."""
        plan = self.plan
        data: JsonObject = files.finite(
            {
                "plan": plan.name,
                "status": str(plan.status),
                "objective": plan.objective,
                "bound": plan.bound,
                "gap": plan.gap,
                "critical": dict(self.critical),
                "changes": [one.to_row() for one in self.changes],
                "seconds": self.seconds,
                "note": self.note or None,
            }
        )
        return data

    def contents(self) -> list[Head | Account | Sheet]:
        """Return what is printed."""
        parts: list[Head | Account | Sheet] = [*self.plan.contents()[:1]]
        lines = list(self.critical)
        if self.changes:
            told = as_text.plural(len(self.changes), "change")
            lines.append(("planned anew", f"{told} in {as_text.seconds(self.seconds)}"))
        if self.note:
            lines.append(("note", self.note))
        if lines:
            parts.append(Account(lines))
        whole = self.plan.objective
        rows = [
            [
                one.change,
                str(one.result.status),
                as_text.number(one.result.objective),
                share(one.saved, whole),
                share(one.most, whole),
            ]
            for one in self.changes
        ]
        if rows:
            header = ("with", "status", "cycles", "saves", "at most")
            parts.append(Sheet(header, rows, header[:2], spare=("status",)))
        return parts

    def _line(self) -> str:
        return f"{self.plan.name!r}, {len(self.changes)} changes"


def explain_plan(
    plan: ModelPlan,
    *,
    time_limit: float | None = 60,
    seed: int = 0,
    threads: int = 1,
    stop: Stop | None = None,
) -> PlanExplanation:
    """Explain what limits the speed of a plan, and what changes of its cluster would gain.

    The model is planned again with one more device, with a tenth more memory, with links twice as
    fast, and without each of these limits.  The bound of each new plan is the most that the change
    can gain.

    Parameters
    ----------
    plan : ModelPlan
        The plan.  If its stages have phases, the changed plans have them, too.  For training plans
        and graphs with groups, no changes are tried.
    time_limit : float, optional
        Seconds of all plans together; each gets an equal part of the remaining time.
    seed, threads : int
        As for :func:`.plan_model`.
    stop : threading.Event or callable, optional
        Ends it from another thread, with the changes tried so far, see :func:`stagepack.solve`.

    Returns
    -------
    PlanExplanation

    Raises
    ------
    InputError
        If `plan` is not a plan, or violates a rule.
    """
    time_limit = require_time(time_limit)
    if not isinstance(plan, ModelPlan):
        remedy = "give a plan, or an instance to explain"
        raise InputError(f"{a(type(plan).__name__)} is no plan", field="plan", remedy=remedy)
    broken = plan.check()
    if broken:
        raise InputError(str(broken[0]), field="plan", remedy="see all of it: stagepack check")
    if not plan.levels or plan.objective is None:
        return PlanExplanation(plan, (), (), 0.0)
    questions = list(_changed(plan))
    began = time.monotonic()
    changes = []
    for at, asked in enumerate(questions):
        limit = None
        if time_limit is not None:
            left = time_limit - (time.monotonic() - began)
            limit = max(LEAST, left / (len(questions) - at) / QUESTIONS)
        split = plan.schedule.split
        found = plan_model(
            asked.model,
            asked.cluster,
            microbatches=plan.microbatches,
            split=split,
            remote=asked.remote,
            time_limit=limit,
            seed=seed,
            threads=threads,
            stop=stop,
        )
        changes.append(change(asked.change, plan, found))
        if found.interrupted:
            break
    note = "" if questions else "plan anew to see what a change of the cluster buys"
    took = time.monotonic() - began
    return PlanExplanation(plan, tuple(_critical(plan)), tuple(changes), took, note)


class _Question(NamedTuple):
    """What is planned anew: see :func:`.plan_model`."""

    change: str
    model: Any
    cluster: Any = None
    remote: Chip | None = None


def _changed(plan: ModelPlan) -> Iterator[_Question]:
    """Yield the changes, and what is planned for with them."""
    cut: Any = plan.level("partition").instance
    network = next((one.instance for one in plan.levels if one.name == NETWORK), None)
    if network is not None and (isinstance(cut, GraphPartition) or cut.training):
        return
    known = tradeoffs(cut.kind)
    if isinstance(cut, GraphPartition):
        if plan.on_chip:
            cut = cut.replace(capacity=list(plan.on_chip[: cut.accelerators]))
        whole = cut.replace(microbatches=plan.microbatches)
    else:
        if plan.on_chip:
            cut = _with_memory(cut, plan.on_chip)
        # Links count in every schedule, whatever the stages were cut for.
        objective = cut.objective if cut.placed else Objective.TRANSFER_BOUNDED
        whole = cut.replace(microbatches=plan.microbatches, objective=objective)
    remote = next(
        (one.instance.chip for one in plan.levels if isinstance(one.instance, PhaseSchedule)), None
    )
    for what in known.what_ifs(whole):
        if what.instance.objective != whole.objective:
            continue  # a schedule says when links are busy, whatever stages were cut for
        changed: Any = what.instance.replace(objective=cut.objective)
        if network is None:
            yield _Question(what.change, changed, remote=remote)
        else:
            yield _Question(what.change, network, changed.cluster)
    if network is not None:
        for what in tradeoffs(network.kind).what_ifs(network):
            yield _Question(what.change, what.instance, cut.cluster)


def _with_memory(chain: PipelinePartition, memory: tuple[int | None, ...]) -> PipelinePartition:
    devices = tuple(
        msgspec.structs.replace(device, memory=own)
        for device, own in zip(chain.cluster.devices, memory, strict=True)
    )
    return chain.replace(cluster=msgspec.structs.replace(chain.cluster, devices=devices))


def _critical(plan: ModelPlan) -> Iterator[tuple[str, str]]:
    """Yield what binds in the whole, and the stages, links and layers that do most."""
    whole = dict(plan.binds())
    yield from whole.items()
    cut = plan.level("partition")
    known = tradeoffs(cut.instance.kind)
    for name, said in known.critical(cut.instance, cut.result.solution):
        if name not in whole:
            yield name, said


@chapter.register
def _chapter(given: PlanExplanation, anchor: str, figures: JsonObject) -> Chapter:
    return with_pictures(f"What binds in the plan of {given.plan.name}", given, {})
