"""Recomputation in a chain, once a layer at most: a plan is a path over the layers.

In a chain, sequences follow from the policies: a maximal run [i, j) of dropped layers is computed
again from x_i just before the backward pass of layer j, which reads x_j.  While the run is on
chip, all that is there of the layers before it is what was kept: K_i bytes.

Sets
    N        nodes (l, s): layers before l are decided; s tells how layer l - 1 was:
             kept, paged, dropped
    A        arcs: keep(l), page(l) from l to l + 1; run(i, j) from i to j, never from "dropped"
             unless x_i has no bytes: then nothing ties two runs together
Parameters
    w_l      bytes of tape and output of a kept layer, K_l = sum over kept layers before l
    peak_ij  most bytes of a run while it is on chip, but for the moments it shares with layer j
    room     bytes for what is live; g_l, h_l of it gradients during and before backward of l
Variables
    y_a      arc a is on the path
    P, c, m  cycles of paging, of compute in a step, of overlapped slots (only where layers page)
Objective
    minimise cycles computed again (the whole time where layers page)
Constraints
    flow      one unit from (0, kept) to layer n
    forward   K_l + x_l + x_{l+1} + tape_l + temporary_l <= room
    backward  K_l + sum of peak_ij y_ij over runs across l + what layer l and a run up to it need
              <= room
    again     K_l + sum of what a run up to l needs while it is computed again <= room
    cutoff    objective <= upper
Size
    up to n^2 + 7 n binaries, far fewer where long runs do not fit; 6 n rows
Source
    ours

Every run is charged its peak at all of its layers, so fractions of runs that begin in different
places cannot average their peaks out: that, and the few rows, is why this is much stronger than
one variable a layer and backward step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagepack.formulations.phases.remat_cost import RematProgram
from stagepack.formulations.whole import Terms, add, merged
from stagepack.instances.phases.data import PhaseSolution, Policy
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.profile import Array

KEPT, PAGED, DROPPED = range(3)


class Run(NamedTuple):
    """Layers [first, end), after a layer that was `source`: kept, paged or dropped."""

    first: int
    end: int
    source: int


@dataclass(frozen=True)
class Arc:
    """An arc of the path: layers [first, end), all of one policy, coming from a state."""

    first: int
    end: int
    state: int
    source: int
    column: int


class RematPath(RematProgram):
    """The path program; see the module."""

    def build(self) -> None:
        """Add the choices and what ties them."""
        self.arcs: list[Arc] = []
        self._add_arcs()
        self._flow()
        self._memory()

    @staticmethod
    def unsupported(instance: PhaseSchedule) -> str:
        """Return why an instance has no paths, '' if it has."""
        if not instance.chain or instance.recomputations > 1:
            return "paths need a chain in which a layer is computed again once at most"
        return ""

    # ------------------------------------------------------------------ arcs

    def _add_arcs(self) -> None:
        """Add all arcs: runs of layers of which the same becomes."""
        step, n = self.step, self.step.n
        for first in range(n):
            for source in (KEPT, PAGED, DROPPED):
                if first == 0 and source != KEPT:
                    continue
                if not step.products[first] or step.allowed[Policy.KEEP]:
                    self._add(first, first + 1, KEPT, source)
                if not step.products[first]:
                    continue
                if step.allowed[Policy.STASH]:
                    self._add(first, first + 1, PAGED, source)
                if step.allowed[Policy.RECOMPUTE] and (source != DROPPED or not step.x[first]):
                    self._add_runs(first, source)

    def _add_runs(self, first: int, source: int) -> None:
        """Add arcs for runs of dropped layers."""
        step = self.step
        for end in range(first + 1, step.n + 1):
            if not step.products[end - 1]:
                return
            run = Run(first, end, source)
            if max(self.run_peak(run), self.run_again(run)) > step.room:
                return  # longer runs need no less
            self._add(first, end, DROPPED, source)
            if not self.ties(end):
                return

    def ties(self, layer: int) -> bool:
        """Whether layer `layer` (or none, at the end) reads a tensor with bytes."""
        return layer < self.step.n and self.step.x[layer] > 0

    def _add(self, first: int, end: int, state: int, source: int) -> None:
        """Add an arc with its column."""
        again = sum(self._recomputed(first, end)) if state == DROPPED else 0
        paged = self.step.products[first] if state == PAGED else 0
        column = self.cost.column(again, paged)
        self.arcs.append(Arc(first, end, state, source, column))

    def _recomputed(self, first: int, end: int) -> list[int]:
        """Return the cycles of what is computed again: all but a last layer that nobody needs."""
        cycles = self.step.forward[first:end]
        return cycles if self.ties(end) or self.step.tape[end - 1] else cycles[:-1]

    # ------------------------------------------------------------------ what runs need

    def base_of(self, run: Run) -> int:
        """Return the bytes of what a run begins with where they are not among the kept ones."""
        return self.step.x[run.first] if run.first and run.source != KEPT else 0

    def run_bytes(self, run: Run) -> int:
        """Return what is there of a run just before the backward pass of layer `end`."""
        step, (first, end, _) = self.step, run
        return self.base_of(run) + sum(step.x[first + 1 : end + 1]) + sum(step.tape[first:end])

    def run_again(self, run: Run) -> int:
        """Return the most bytes of a run, gradients included, while it is computed again."""
        step, (first, end, _) = self.step, run
        stage = end if self.ties(end) else end - 1
        last = end if self.ties(end) or step.tape[end - 1] else end - 1
        held = self.base_of(run) + step.gradients_before[stage]
        most = 0
        for layer in range(first, last):
            held += step.x[layer + 1] + step.tape[layer]
            most = max(most, held + step.temporary[layer])
        return most

    def run_peak(self, run: Run) -> int:
        """Return the most bytes of a run, gradients included, in backward passes of its own."""
        step, (first, end, _) = self.step, run
        held = self.base_of(run)
        most = 0 if self.ties(end) else self.run_again(run)
        for layer in range(first, end):
            held += step.tape[layer]
            most = max(most, held + step.temporary[layer] + step.gradients[layer])
            held += step.x[layer + 1]
        return most

    # ------------------------------------------------------------------ constraints

    def _flow(self) -> None:
        """What enters a node leaves it; one unit leaves the first."""
        balance: dict[tuple[int, int], Terms] = {}
        for arc in self.arcs:
            balance.setdefault((arc.first, arc.source), {})[arc.column] = 1
            if arc.end < self.step.n:
                balance.setdefault((arc.end, arc.state), {})[arc.column] = -1
        for node, terms in sorted(balance.items()):
            one = int(node == (0, KEPT))
            self.program.row(terms, low=one, high=one)
        if (0, KEPT) not in balance:
            self.program.contradiction = True

    def _memory(self) -> None:
        step, n = self.step, self.step.n
        forward: list[Terms] = [{} for _ in range(n)]
        backward: list[Terms] = [{} for _ in range(n)]
        again: list[Terms] = [{} for _ in range(n)]
        kept: Terms = {}  # K_l, as l rises
        starting: list[list[Arc]] = [[] for _ in range(n)]
        for arc in self.arcs:
            starting[arc.first].append(arc)
            if arc.state != KEPT:
                # x_l is not among the kept bytes.
                for layer in range(arc.first + 1, min(arc.end, n - 1) + 1):
                    add(forward[layer], arc.column, step.x[layer])
            if arc.state == DROPPED:
                run = Run(arc.first, arc.end, arc.source)
                peak = self.run_peak(run)
                for layer in range(arc.first, arc.end):
                    add(backward[layer], arc.column, peak)
                if self.ties(arc.end):
                    held = self.run_bytes(run)
                    add(backward[arc.end], arc.column, held)
                    most = self.run_again(run)
                    add(again[arc.end], arc.column, most)
                continue
            layer = arc.first
            own = step.tape[layer] + step.temporary[layer] + step.gradients[layer]
            if arc.source == PAGED:
                own += step.x[layer]
            add(backward[layer], arc.column, own)
            if arc.state == KEPT:
                add(again[layer], arc.column, step.tape[layer])
        for layer in range(n):
            fixed = step.x[layer + 1] + step.tape[layer] + step.temporary[layer]
            self.program.row(merged(forward[layer], kept), high=step.room - fixed)
            self.program.row(merged(backward[layer], kept), high=step.room)
            self.program.row(merged(again[layer], kept), high=step.room)
            for arc in starting[layer]:
                if arc.state == KEPT:
                    add(kept, arc.column, step.products[layer])

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> PhaseSolution:
        """Return the plan of an engine's values."""
        step = self.step
        policy = [
            step.idle_policy(i) if not step.products[i] else Policy.KEEP for i in range(step.n)
        ]
        for arc in self.arcs:
            if values[arc.column] > 0.5 and step.products[arc.first]:
                found = (Policy.KEEP, Policy.STASH, Policy.RECOMPUTE)[arc.state]
                policy[arc.first : arc.end] = [found] * (arc.end - arc.first)
        return step.plan(policy, None)

    def hint(self, solution: PhaseSolution) -> Array:
        """Return the values of a plan."""
        step = self.step
        known = {(arc.first, arc.end, arc.state, arc.source): arc for arc in self.arcs}
        values = np.zeros(len(self.program.cost))
        at, source = 0, KEPT
        while at < step.n:
            policy, end, state = solution.policy[at], at + 1, KEPT
            if step.products[at] and policy == Policy.STASH:
                state = PAGED
            elif step.products[at] and policy == Policy.RECOMPUTE:
                state = DROPPED
                while (
                    self.ties(end)
                    and step.products[end]
                    and solution.policy[end] == Policy.RECOMPUTE
                ):
                    end += 1
            arc = known.get((at, end, state, source))
            if arc is None:
                raise ValueError(f"layers {at} to {end - 1} as {policy} are not in the program")
            values[arc.column] = 1
            at, source = end, state
        return self.cost.hint(values)
