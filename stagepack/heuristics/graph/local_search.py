"""Local search over stages: simulated annealing of blocks, for every kind of load.

The stages keep their order and their class of device.  A block moves to another stage together with
the blocks that the precedences force to move, or is exchanged with a block there.  Moves must keep
the limits of memory, and leave no stage empty that must not be.  The energy is a norm of all loads
that is slightly larger than the maximum, so that it distinguishes moves with equal maximum.

A quarter of the moves are exchanges: within equal work of a second, over four seeds, this lowers
the mean on branchy and layered graphs of 100 and 200 nodes by 0.3 to 0.9 %, and on nasnetamobile by
0.2 %.  Annealing on coarsened graphs first was no better in equal time and is left out.

Cost: a move examines the nets and neighbours of the blocks that move, whose number is limited.
Source: Kirkpatrick et al., *Optimization by Simulated Annealing*, Science 1983; the moves are ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.local_kernels import (
    BEST,
    MEMORY,
    OVERLAP,
    SEED,
    STEPS,
    SUM,
    Blocks,
    Draws,
    Placed,
    anneal,
)
from stagepack.heuristics.graph.tuning import TUNING, AnnealingTuning
from stagepack.instances.graph.compact import Compact
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array


class PartitionSearch:
    """A local search from a partition.

    It takes no unlike links, nor `replicated` (:meth:`unsupported`).  `stages`, shape (blocks,), is
    a valid partition to start from, and `classes`, shape (stages,), the class of the device of each
    stage; as attributes they are those of the best partition found, and `value` its ticks.  All
    that is drawn follows from `seed`.  `pause` is called between parts of what comes before the
    first round.
    """

    def __init__(
        self,
        compact: Compact,
        stages: Array,
        classes: Array,
        seed: int = 0,
        pause: Callable[[], object] = lambda: None,
        tuning: AnnealingTuning = TUNING.annealing,
    ) -> None:
        self.compact, self.tuning = compact, tuning
        self._draws = Draws(
            max(1, tuning.exchanges), max(1, tuning.anywhere), max(1, tuning.together)
        )
        kinds, chosen, self._stage = _slots(compact, np.asarray(stages), np.asarray(classes))
        self.classes = kinds if compact.sequence is None else compact.sequence.tolist()
        self._kind = {Objective.OVERLAP: OVERLAP, Objective.MEMORY: MEMORY}.get(
            compact.objective, SUM
        )
        count, used = len(kinds), int(chosen.max()) + 1
        # With stashes the number of stages counts: it stays as it is.
        self._keep = compact.exact_stages or bool(compact.stash.any())
        flying = np.minimum(compact.microbatches, np.maximum(1, used - np.arange(count)))
        self._blocks = Blocks(
            np.ascontiguousarray(compact.time[:, kinds]),
            compact.size,
            compact.stash,
            compact.before_ptr,
            compact.before,
            compact.after_ptr,
            compact.after,
            compact.net_ptr,
            compact.net,
            compact.net_cost,
            compact.net_pass,
            compact.of_ptr,
            compact.of_net,
            compact.class_pays[kinds],
            compact.class_memory[kinds],
            flying if compact.stash.any() else np.zeros(count, dtype=np.int64),
        )
        self._placed = self._place(chosen, seed, pause)

    @staticmethod
    def unsupported(compact: Compact, tuning: AnnealingTuning = TUNING.annealing) -> str:
        """Return why there is no local search, '' where there is."""
        if not compact.uniform:
            return "links are unlike"
        if compact.objective == Objective.REPLICATED:
            return "stages may be replicated"
        if compact.nets * compact.devices > tuning.largest_table:
            return f"{compact.nets:,} nets on {compact.devices:,} stages are too many"
        return ""

    @property
    def value(self) -> int:
        """Ticks of the best partition found."""
        return int(self._placed.state[BEST])

    @property
    def stages(self) -> Array:
        """The best partition found, shape (blocks,)."""
        return self._stage[self._placed.best]

    def round(self, pause: Callable[[], object]) -> bool:
        """Anneal once from the best partition; return whether a better one was found.

        `pause` is called between chunks of work; what it raises ends the round.
        """
        before, placed, tuning = self.value, self._placed, self.tuning
        self._placed = self._place(placed.best.copy(), int(placed.state[SEED]), pause)
        reference = float(max(1, before))
        blocks = self.compact.blocks
        times = tuning.uncached_factor if self._placed.inside.size > tuning.cached else 1.0
        least = min(tuning.least_moves, tuning.small_moves * blocks)
        moves = max(tuning.moves * blocks, least) // tuning.coolings
        for heat in np.geomspace(tuning.hottest, tuning.coldest, tuning.coolings).tolist():
            left = moves
            while left > 0:
                tried = anneal(
                    self._kind,
                    left,
                    tuning.chunk,
                    heat,
                    reference,
                    self._keep,
                    self._draws,
                    self._blocks,
                    self._placed,
                )
                left -= tried
                steps = int(self._placed.state[STEPS])
                effort.spend(times * (tuning.move_price * tried + tuning.step_price * steps))
                pause()
        return self.value < before

    def _place(self, stages: Array, seed: int, pause: Callable[[], object]) -> Placed:
        """Return what follows from where blocks are; a part of the nets between two pauses."""
        compact, blocks = self.compact, self._blocks
        nets, count, passes = compact.nets, len(self._blocks.room), compact.passes
        inside = np.zeros((nets, count), dtype=np.int64)
        spread = np.zeros(nets, dtype=np.int64)
        time, received, sent = (np.zeros((passes, count), dtype=np.int64) for _ in range(3))
        for q in range(passes):
            np.add.at(time[q], stages, blocks.time[q, stages, np.arange(compact.blocks)])
        part = max(1, self.tuning.part // count)
        for low in range(0, nets, part):
            some = slice(low, min(nets, low + part))
            ptr, cost = compact.net_ptr[low : some.stop + 1], compact.net_cost[some]
            at = stages[compact.net[ptr[0] : ptr[-1]]]
            np.add.at(inside, (np.repeat(np.arange(low, some.stop), np.diff(ptr)), at), 1)
            home = at[ptr[:-1] - ptr[0]]
            reached = inside[some] > 0
            spread[some] = reached.sum(axis=1)
            for q in range(passes):
                mine = compact.net_pass[some] == q
                touched = reached & mine[:, None]
                touched[np.arange(len(home)), home] = False
                received[q] += cost @ touched
                crossing = mine & (spread[some] > 1)
                np.add.at(sent[q], home[crossing], cost[crossing])
            effort.spend(self.tuning.entry_price * (reached.size + len(at)))
            pause()
        held = np.zeros(count, dtype=np.int64)
        np.add.at(held, stages, compact.size + blocks.flying[stages] * compact.stash)
        placed = Placed(
            stages.astype(np.int64),
            stages.astype(np.int64),
            inside,
            spread,
            time,
            received,
            sent,
            held,
            np.bincount(stages, minlength=count),
            np.zeros(self.tuning.most_moved, dtype=np.int64),
            np.zeros(self.tuning.most_moved, dtype=np.int64),
            np.zeros(compact.blocks, dtype=np.int64),
            np.array([seed % (2**31 - 2) + 1, 0, 0, 0], dtype=np.int64),
        )
        load = time.copy()
        if self._kind == MEMORY:
            load[0] = held
        elif self._kind == SUM:
            load[:, blocks.pays] += (received + sent)[:, blocks.pays]
        else:
            most = np.maximum(received, sent)[:, blocks.pays]
            load[:, blocks.pays] = np.maximum(load[:, blocks.pays], most)
        placed.state[BEST] = load.max(axis=1).sum()
        return placed


def _slots(compact: Compact, stages: Array, classes: Array) -> tuple[list[int], Array, Array]:
    """Return classes and stages that a search goes by, and which stage each of its stages is.

    Without gaps, then the devices that are left as empty stages, where devices have no fixed order;
    only stages that hold blocks where stashes depend on how many these are.
    """
    used, chosen = np.unique(stages, return_inverse=True)
    if compact.stash.any() or (compact.sequence is None and compact.exact_stages):
        if compact.sequence is not None:
            return compact.sequence[used].tolist(), chosen, used
        return classes[used].tolist(), chosen, np.arange(len(used))
    if compact.sequence is not None:
        return compact.sequence.tolist(), stages, np.arange(len(compact.sequence))
    kinds = classes[used]
    left = compact.class_count - np.bincount(kinds, minlength=len(compact.class_count))
    spare = np.repeat(np.arange(len(left)), left)
    return [*kinds.tolist(), *spare.tolist()], chosen, np.arange(len(kinds) + len(spare))
