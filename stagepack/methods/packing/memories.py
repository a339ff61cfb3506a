"""Packing of several memories: each by itself where nobody has a choice, else homes first.

Memories between which no buffer has a choice are packed apart, the fewest buffers first, each with
its share of the time; the larger ones have what those leave.  Bounds and costs add up, and where
one has no placement, all have none.  Buffers with a choice are spread by value and moved by local
search; then a model proves, or finds better.  Last, each memory is packed anew for its peak.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.contracts import Solution
from stagepack.evidence import SEARCHED, TOLD, Evidence, Proof, witness
from stagepack.formulations import packing as formulations
from stagepack.heuristics import effort
from stagepack.heuristics.packing import homes, local_search
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods import packing as methods
from stagepack.methods.packing import iis, steps
from stagepack.methods.packing.attempt import Attempt, PackingProgress, look_at_memories
from stagepack.progress import Part, Stopped
from stagepack.result import Status

Solve = Callable[[LmemPacking, PackingProgress, Settings], None]
"""Runs ``auto`` on an instance, on the clocks of the run."""


def apart(
    instance: LmemPacking, progress: PackingProgress, settings: Settings, solve: Solve
) -> bool:
    """Pack what has nothing to do with the rest by itself; return whether that was all.

    `solve` packs a share of an instance with memories.
    """
    where = look_at_memories(instance, progress, tuning=settings.tuned(TUNING))
    found = homes.shares(instance, where)
    if len(found) == 1 and len(found[0].memories) > 1:
        return False
    _Whole(instance, progress, settings, found).run(solve)
    return True


@dataclass
class _Known:
    """What is known of a share, and how its run ended."""

    solution: PackingSolution | None = None
    bound: int | None = None
    evidence: Evidence | None = None
    reason: str = ""
    proved: bool = False


class _Whole:
    """The run of all shares: puts together what is known of each."""

    def __init__(
        self,
        instance: LmemPacking,
        progress: PackingProgress,
        settings: Settings,
        shares: list[homes.Share],
    ) -> None:
        self.instance, self.progress, self.settings = instance, progress, settings
        self.shares = shares
        self.known = [_Known() for _ in shares]

    def run(self, solve: Solve) -> None:
        """Solve the shares, the smallest first, each in its part of the time that is left."""
        for number, share in enumerate(self.shares):
            seconds = self.progress.remaining / (len(self.shares) - number)
            settings = dataclasses.replace(self.settings, warm_start=self._start(share))
            part = _part(self.progress, share, settings, seconds)
            part.on_change = functools.partial(self._take, number, part)
            with contextlib.suppress(Stopped):
                _within(part, share, settings, seconds, solve)
            self._take(number, part)
            known = self.known[number]
            known.reason, known.proved = part.reason, part.proved
            if part.interrupted:
                self.progress.interrupt()
            if part.infeasible_reason is not None:
                self._infeasible(share, part)
                raise Stopped
            if not self.progress.keep_going() and self.progress.solution is not None:
                break
        self._conclude()

    def _start(self, share: homes.Share) -> Solution | str | None:
        """Return where the run of a share starts."""
        start = self.settings.warm_start
        if isinstance(start, PackingSolution) and start.memory is not None:
            index = np.searchsorted(share.memories, start.memory[share.buffers])
            inside = index if share.instance.memories else None
            return PackingSolution.of(share.instance, start.offsets[share.buffers], inside)
        return "auto" if isinstance(start, str) and share.instance.memories else start

    def names(self, share: homes.Share) -> str:
        """Return the memories of a share in words."""
        return ", ".join(self.instance.memories[k].name for k in share.memories)

    def _take(self, number: int, part: PackingProgress) -> None:
        """Take what is new of a share to the whole."""
        share, known = self.shares[number], self.known[number]
        found = part.solution
        if part.bound is not None:
            known.bound, known.evidence = int(part.bound), part.evidence
        self._raise()
        if found is None or found is known.solution or self._beyond(share, found):
            return
        known.solution = found
        if all(one.solution is not None for one in self.known):
            self._offer()

    def _beyond(self, share: homes.Share, solution: PackingSolution) -> int:
        """Return by how many bytes a solution exceeds a capacity that its objective ignores."""
        capacity = share.instance.capacity
        if capacity is None or share.instance.objective is not Objective.PEAK:
            return 0
        return max(0, int((solution.offsets + share.instance.size).max()) - capacity)

    def _raise(self) -> None:
        """Add up the bounds of all shares."""
        bounds = [
            share.constant if share.constant is not None else one.bound or 0
            for share, one in zip(self.shares, self.known, strict=True)
        ]
        told = [
            one.evidence is not None and one.evidence.proof is Proof.ENGINE
            for share, one in zip(self.shares, self.known, strict=True)
            if share.constant is None
        ]
        why = TOLD if any(told) else SEARCHED
        source = "sum over memories"
        if all(share.constant is not None for share in self.shares):
            why, source = witness("floor"), "load bound"
        self.progress.raise_bound(sum(bounds), source, why)

    def _offer(self) -> None:
        """Put the placements of all shares together."""
        offsets, memory = np.zeros((2, self.instance.n), dtype=np.int64)
        for share, one in zip(self.shares, self.known, strict=True):
            assert one.solution is not None
            offsets[share.buffers] = one.solution.offsets
            chosen = np.array(share.memories)
            inside = one.solution.memory
            memory[share.buffers] = chosen[0] if inside is None else chosen[inside]
        self.progress.offer(PackingSolution.of(self.instance, offsets, memory), "each memory")

    def _infeasible(self, share: homes.Share, part: PackingProgress) -> None:
        """Say which memory has too little, what of it does not fit, and what would do."""
        assert part.infeasible_reason is not None
        assert part.evidence is not None
        why = TOLD if part.evidence.proof is Proof.ENGINE else SEARCHED
        said = f"{self.names(share)}: {part.infeasible_reason}"
        self.progress.prove_infeasible(said, why)
        other = _elsewhere(self.instance, share, self.progress, self.settings)
        if other:
            self.progress.prove_infeasible(f"{said}; {other}", why)

    def _conclude(self) -> None:
        """Say which memories are not proved, and which have no placement."""
        said = []
        for share, one in zip(self.shares, self.known, strict=True):
            if one.solution is None:
                said.append(f"{self.names(share)}: {one.reason or 'no placement was found'}")
            elif one.reason and not one.proved:
                said.append(f"{self.names(share)}: {one.reason}")
        self.progress.reason = "; ".join(said)


class _Part(Part[PackingSolution, PackingSolution]):
    """The run of a share, which tells the whole what is new."""

    on_change: Callable[[], None] = staticmethod(lambda: None)


def _part(
    progress: PackingProgress, share: homes.Share, settings: Settings, seconds: float
) -> _Part:
    """Return the run of a share, which ends after so many seconds."""
    instance = share.instance
    target = math.inf if share.constant is not None else instance.goal
    part: _Part = _Part(
        progress,
        instance.evaluate,
        instance.check,
        time_limit=None if math.isinf(seconds) else max(0.0, seconds),
        target=target,
        tolerance=instance.tolerance,
        secondary=instance.secondary,
        on_incumbent=lambda *_: part.on_change(),
        on_bound=lambda *_: part.on_change(),
    )
    if settings.deterministic and not math.isinf(seconds):
        spent, began = effort.carried(effort.spent), effort.spent()
        part.limit_by(lambda: spent() - began, seconds)
    return part


def _within(
    part: _Part, share: homes.Share, settings: Settings, seconds: float, solve: Solve
) -> None:
    """Solve a share; one with a capacity that its objective ignores is asked for that, too."""
    instance = share.instance
    with effort.lending(1.0, seconds):
        solve(instance, part, settings)
        capacity, objective = instance.capacity, instance.objective
        if capacity is None or objective is not Objective.PEAK or part.objective is None:
            return
        if part.objective <= capacity or part.interrupted:
            return
        fitting = dataclasses.replace(share, instance=instance.replace(objective=Objective.FIT))
        asked = _part(part.whole, fitting, settings, max(0.0, part.remaining))
        with contextlib.suppress(Stopped):
            solve(fitting.instance, asked, dataclasses.replace(settings, warm_start="auto"))
    part.reason = asked.reason
    if asked.infeasible_reason is not None:
        part.solution, part.objective = None, None
        part.prove_infeasible(asked.infeasible_reason, asked.evidence or SEARCHED)
    elif asked.solution is not None:
        part.solution, part.objective = asked.solution, asked.objective


def _elsewhere(
    instance: LmemPacking, share: homes.Share, progress: PackingProgress, settings: Settings
) -> str:
    """Return which buffer would do in which other memory, in words; "" where none is known."""
    tuning = settings.tuned(TUNING)
    known, everywhere = instance.homes, len(share.memories) == len(instance.memories)
    if known is None or everywhere or instance.n > tuning.reasons.blocks:
        return ""
    questions = iis.Questions(progress, tuning=tuning)
    largest = share.buffers[np.argsort(-instance.size[share.buffers], kind="stable")]
    for buffer in largest[: tuning.reasons.probed].tolist():
        for index, level in enumerate(instance.memories):
            if index in share.memories or not questions.keep_going():
                continue
            wider = known.copy()
            wider[buffer, index] = True
            asked = iis.part(instance.replace(homes=wider), [*range(instance.n)], None)
            if questions.fits(asked) is Status.FEASIBLE:
                return f"or allow buffer {instance.buffer_id(buffer)} in {level.name}"
    return ""


def choose(attempt: Attempt, settings: Settings, solve: Solve) -> None:
    """Choose memories by local search, then by a model, and pack each memory anew for its peak.

    `solve` packs each memory.  Of `settings` the seed counts, and what the engine is told.
    """
    instance, progress, tuning = attempt.instance, attempt.progress, attempt.tuning
    modelled = not formulations.CpSat.unsupported(instance)
    if progress.solution is None or progress.solution.memory is None:
        memory = steps.spill_by_value(attempt)
    else:
        memory = progress.solution.memory
    if instance.objective is not Objective.PENALTIES:
        most = min(tuning.homes.seconds, tuning.homes.share * effort.left())
        _move(attempt, memory, settings.seed, most if modelled else math.inf)
    lent = progress.lending(1 - tuning.homes.share, math.inf)
    with lent if instance.objective is Objective.PEAK else contextlib.nullcontext():
        if modelled and progress.keep_going():
            from stagepack.methods.models import load_engine

            engine = load_engine("cp-sat", progress, settings)
            methods.modelled.solve(attempt, None, engine, "CpSat", settings)
    for turn in itertools.count(1):
        before, known = effort.spent(), progress.solution
        if known is None or known.memory is None or instance.objective is not Objective.PEAK:
            return
        _anew(attempt, known.memory, settings, solve)
        if math.isinf(progress.remaining) or not progress.keep_going():
            return
        _move(attempt, known.memory, settings.seed + turn, math.inf)
        if effort.spent() == before:
            return


def _move(attempt: Attempt, memory: Array, seed: int, seconds: float) -> None:
    """Move buffers between memories, at first in `memory`, for so many seconds of work."""
    local_search.homes.improve(
        attempt.instance,
        memory,
        keep_going=attempt.for_a_while(seconds),
        on_solution=lambda offsets, at: attempt.offer_buffers(offsets, "homes", at),
        seed=seed,
        tuning=attempt.tuning,
    )


def _anew(attempt: Attempt, memory: Array, settings: Settings, solve: Solve) -> None:
    """Pack each memory anew, every buffer to stay in the one it is in."""
    instance, progress = attempt.instance, attempt.progress
    where = memory[:, None] == np.arange(len(instance.memories))
    pinned = instance.replace(homes=where)
    part = Part[PackingSolution, PackingSolution](
        progress,
        pinned.evaluate,
        pinned.check,
        secondary=pinned.secondary,
        on_incumbent=lambda found, *_: attempt.offer_buffers(found.offsets, "anew", found.memory),
    )
    with contextlib.suppress(Stopped):
        apart(pinned, part, settings, solve)
