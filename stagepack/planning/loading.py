"""Stages that load variables: their phases, and the layers whose variables stay on the chip.

The layers whose variables are loaded are spread over the whole stage.  Each phase then computes
layers whose variables stay while the variables of the next phase are loaded.  With fewer loaded
layers there is less memory for phases.  Their share is therefore increased, beyond what memory
makes necessary, as long as the phases become faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.stage import held_on_chip, stage_phases, variables
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.profile import Array, Chip
from stagepack.planning.tries import Tries
from stagepack.result import Result

PARTS = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7)
"""Of variables for which there is room, those that are loaded nevertheless; more as long as that is
better."""
AHEAD = 64
"""Layers of a stage up to which phases load variables of the next one."""
Stage = tuple[int, int, int]
"""Layers [first, end), and the device."""


@dataclass
class Loading(Tries):
    """What is known of phases while plans are looked for; the chip is in cycles of the schedule."""

    chip: Chip = field(kw_only=True)
    _phases: dict[object, tuple[PhaseSchedule, Result[PhaseSolution]]] = field(default_factory=dict)

    def phases(
        self,
        chain: PipelinePartition,
        stage: Stage,
        memory: int,
        bundle: int,
        *,
        backward: bool,
        key: object = None,
    ) -> tuple[PhaseSchedule, Result[PhaseSolution]] | None:
        """Return the best phases of a stage of a `chain` that are found; None where it has no room
        for any.

        They have so many bytes of `memory`, a `bundle` passes through them at a time, and `key`
        stands for the chain.  `backward`: with its backward pass.
        """
        left = memory - held_on_chip(chain, *stage[:2])
        if left <= 0:
            return None
        asked = key, stage, bundle, backward
        if asked in self._phases:
            return self._phases[asked]
        ahead = not chain.training and stage[1] - stage[0] <= AHEAD
        for kept, nbytes in _kept(chain, stage, left):
            known = self._phases.get(asked)
            if known is not None and self.ends():
                break
            instance = stage_phases(
                chain,
                stage,
                msgspec.structs.replace(self.chip, memory=left - nbytes),
                bundle,
                backward=backward,
                kept=kept,
                ahead=ahead,
            )
            found = self.ask(instance)
            if known is None or known[1].solution is None or _sooner(found, known[1]):
                self._phases[asked] = instance, found
            elif found.solution is not None:
                break
        return self._phases[asked]


def _kept(chain: PipelinePartition, stage: Stage, left: int) -> Iterator[tuple[Array | None, int]]:
    """Yield of which layers of a stage variables may stay, and these bytes; None: of none."""
    layers = slice(*stage[:2])
    own = variables(chain)[layers]
    beside = own + (chain.temporary + chain.carry)[layers]
    forced = max(0.0, 1 - left / max(1, int(own.sum())))
    tried = set()
    for part in () if chain.training else PARTS:
        loaded = _spread(own, forced + part * (1 - forced))
        nbytes = int(own[~loaded].sum())
        most = int(beside[loaded].max(initial=0))
        if nbytes + most <= left and loaded.tobytes() not in tried:
            tried.add(loaded.tobytes())
            yield ~loaded, nbytes
    yield None, 0


def _sooner(one: Result[PhaseSolution], other: Result[PhaseSolution]) -> bool:
    """Whether an answer takes less time than another, or is one where that is none."""
    if one.objective is None or other.objective is None:
        return one.objective is not None
    return bool(one.objective < other.objective)


def _spread(nbytes: Array, part: float) -> Array:
    """Return which layers are loaded so that everywhere about a part of the bytes is."""
    found = np.zeros(len(nbytes), dtype=bool)
    due = 0.0
    for at, own in enumerate(nbytes.tolist()):
        due += part * own
        if 0 < own <= due:
            found[at], due = True, due - own
    return found


def divisors(count: int) -> list[int]:
    """Return the divisors of a number, rising."""
    return [size for size in range(1, count + 1) if count % size == 0]
