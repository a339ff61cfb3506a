"""Minimises moved bytes as the second criterion, when an old placement is given.

With objective ``peak``, the least peak is found first, and then a placement with that peak which
moves few bytes.  With ``fit`` every placement within the capacity is equally good, so moves are
minimised from the start.  Greedy passes find a first answer quickly; the model with objective
``moves`` proves it optimal.
"""

from __future__ import annotations

import contextlib
import math

from stagepack.errors import ContradictionError, InputError
from stagepack.evidence import TOLD, Proof, witness
from stagepack.formulations import packing as formulations
from stagepack.heuristics import effort
from stagepack.heuristics.packing import relocation
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.models import load_engine, paced, run_model
from stagepack.methods.packing.attempt import Attempt, PackingProgress
from stagepack.methods.packing.explain import conclude_infeasible
from stagepack.progress import Part, Progress
from stagepack.result import Termination

MODELS = {
    "auto": ("CpSat", "cp-sat"),
    "cp-sat": ("CpSat", "cp-sat"),
    "milp": ("Milp", "highs"),
}
"""Methods that prove the second objective: by which model, on which engine."""

METHODS = (*MODELS, "exact", "portfolio", "dive", "anneal", "beam")
"""Methods to which it matters; the answer of a single rule stays what the rule says."""

UNASKED = " (auto and cp-sat look for a proof, given time)"
"""What is said where no model was asked."""


def matter(name: str, instance: LmemPacking) -> bool:
    """Whether moved bytes decide between answers of equal worth."""
    return (
        name in METHODS
        and instance.objective in (Objective.PEAK, Objective.FIT)
        and bool((instance.previous >= 0).any())
    )


class _Second(Part[PackingSolution, PackingSolution]):
    """The progress of the second objective, which goes on when the first one is proved."""

    def __init__(self, instance: LmemPacking, run: PackingProgress) -> None:
        super().__init__(run, instance.evaluate, instance.check, secondary=instance.secondary)

    def stop_reason(self) -> Termination | None:
        """Return why to stop; that the first objective is proved is no reason."""
        asked = Termination.INTERRUPTED if self.whole.interrupted else None
        return asked or Progress.stop_reason(self)


class MovingLittle:
    """A search for the placement below the address `ceiling` that moves the fewest bytes."""

    def __init__(self, attempt: Attempt, ceiling: int) -> None:
        self.attempt = attempt
        self.instance = attempt.instance.replace(objective=Objective.MOVES, capacity=ceiling)
        self.ceiling = ceiling
        self.progress = _Second(self.instance, attempt.progress)
        self.progress.raise_bound(0, "nothing moves", witness("floor"))
        self.infeasible_by = ""
        self.asked = False  # whether a model was

    def offer(self, offsets: Array, source: str) -> None:
        """Take offsets of all buffers into account, if they respect the height."""
        if int((offsets + self.instance.size).max()) <= self.ceiling:
            self.progress.offer(PackingSolution.of(self.instance, offsets), source)

    def greedily(self) -> None:
        """Keep what passes over time can keep; of fewer blocks, try one after the other."""
        blocks, known = self.attempt.blocks, self.progress.solution
        if not relocation.unsupported(blocks):
            old = relocation.previous(self.instance, blocks)
            keep_going = self.progress.keep_going
            if known is not None:  # mostly not slower than a check: begun whatever time it is
                low = self.attempt.lowest
                assert low is not None
                back = relocation.returned(
                    blocks, low, old, keep_going=keep_going, tuning=self.attempt.tuning
                )
                self.offer(blocks.expand(back), "replan")
            if keep_going():
                found = relocation.around(
                    blocks, old, self.ceiling, keep_going=keep_going, tuning=self.attempt.tuning
                )
                if found is not None:
                    self.offer(blocks.expand(found), "replan")
        if (
            blocks.b <= self.attempt.tuning.relocation.searched_blocks
            and self.progress.keep_going()
        ):
            relocation.move_less(
                self.instance,
                self.ceiling,
                keep_going=self.progress.keep_going,
                on_solution=lambda offsets: self.offer(offsets, "replan"),
                tuning=self.attempt.tuning,
            )

    def prove(self, name: str, settings: Settings) -> None:
        """Let a model find the least, from the best known on."""
        formulation, own_engine = MODELS[name]
        if name == "auto":
            if self.attempt.blocks.b > self.attempt.tuning.relocation.proved_blocks:
                return
            if settings.engine not in (None, "cp-sat"):
                formulation = "Milp"
        if not self.progress.keep_going():
            return
        model = getattr(formulations, formulation)
        if model.unsupported(self.instance):
            return
        unlimited = math.isinf(self.progress.remaining) and not settings.deterministic
        progress = self.progress
        start, value = progress.solution, progress.objective
        self.asked = True
        engine = load_engine(own_engine, self.attempt.progress, settings)
        # Old offsets may need a finer unit than the peak does, and too fine a one for the model.
        with contextlib.suppress(InputError):
            seconds = run_model(
                engine,
                effort.carried(
                    lambda: model(
                        self.instance,
                        upper=value,
                        lower=0,
                        spend=effort.spend,
                        tuning=self.attempt.tuning,
                    )
                ),
                formulation,
                progress,
                paced(settings, engine, progress.remaining),
                start=start,
                start_value=value,
                work=self.attempt.tuning.relocation.model_work
                if name == "auto" and unlimited
                else None,
                overdue=self.attempt.overdue(settings.deterministic),
                conclude_infeasible=lambda: self._conclude_infeasible(engine.name),
            )
            effort.spend(seconds)

    def _conclude_infeasible(self, source: str) -> None:
        """Remember what calls moving little impossible; a placement that does contradicts it."""
        if self.progress.solution is not None:
            raise ContradictionError(f"{source} calls moves impossible that a placement makes")
        self.infeasible_by = source

    def remark(self) -> str:
        """Return what is known about the bytes that move."""
        progress = self.progress
        if progress.objective is None:
            return ""
        if progress.objective == 0:
            return "nothing leaves its previous offset"
        moved = f"{progress.objective:,} bytes leave their previous offsets"
        if progress.proved:
            other = "as low" if self.attempt.instance.goal is None else "that fits"
            return f"{moved}, the fewest of any placement {other} ({progress.bound_source})"
        return f"{moved}, not proved to be the fewest" + ("" if self.asked else UNASKED)


def reserved(
    instance: LmemPacking, progress: PackingProgress, *, tuning: PackingTuning = TUNING
) -> contextlib.AbstractContextManager[None]:
    """Keep a part of the time for moving little, where the peak comes first."""
    if instance.objective is Objective.PEAK:
        return progress.reserving(tuning.relocation.share)
    return contextlib.nullcontext()


def before(name: str, instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Offer, for ``fit``, the placement within the capacity that moves least.

    `name` is the method, which says whether a model may prove it.
    """
    if instance.objective is not Objective.FIT:
        return
    assert instance.ceiling is not None
    attempt = Attempt(instance, progress, tuning=settings.tuned(TUNING))
    search = MovingLittle(attempt, instance.ceiling)
    try:
        search.greedily()
        # Without a placement, `auto` has better ways than this model to find one.
        if name in MODELS and (name != "auto" or search.progress.solution is not None):
            search.prove(name, settings)
    finally:
        _hand_over(search)
    if search.infeasible_by:
        conclude_infeasible(attempt, None, search.infeasible_by)
        if progress.evidence is not None and progress.evidence.proof is Proof.SEARCH:
            progress.evidence = TOLD


def after(name: str, instance: LmemPacking, progress: PackingProgress, settings: Settings) -> None:
    """Offer, once the run has an answer, one of the same peak that moves less.

    `name` is the method, which says whether a model may prove it.
    """
    tuning = settings.tuned(TUNING)
    solution = progress.solution
    if solution is None or progress.interrupted or instance.objective is not Objective.PEAK:
        return
    assert progress.objective is not None
    search = MovingLittle(Attempt(instance, progress, tuning=tuning), int(progress.objective))
    search.progress.offer(solution, "answer")
    try:
        search.greedily()
        if name in MODELS:
            search.prove(name, settings)
    finally:
        _hand_over(search)


def _hand_over(search: MovingLittle) -> None:
    """Give the answer, and what is known about it, to the run."""
    progress, found = search.attempt.progress, search.progress.solution
    if found is None:
        return
    source = next((e.source for e in reversed(search.progress.trace.incumbents)), "replan")
    progress.engine = progress.engine or search.progress.engine
    # What was said of an answer still holds; why there was none does not.
    known = progress.reason if progress.solution is not None else ""
    search.attempt.offer_buffers(found.offsets, source)
    progress.reason = "; ".join(part for part in (known, search.remark()) if part)
    if search.progress.interrupted:
        progress.interrupt()
