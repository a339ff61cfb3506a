"""Recomputation within one group, at most once for each layer: label setting along the layers.

The number of labels kept at each layer is raised in steps until none had to be dropped.
"""

from __future__ import annotations

from stagepack.formulations.phases import RematMilp
from stagepack.formulations.phases.remat import Step
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.enumerate import Pairs
from stagepack.heuristics.phases.remat import NONE, Found, Labels
from stagepack.instances.phases import PhaseSchedule, Policy
from stagepack.instances.phases.modes import Mode


def unsupported(instance: PhaseSchedule) -> str:
    """Return why labels along the layers do not apply, '' if they do."""
    reason = RematMilp.unsupported(instance)
    if reason:
        return reason
    if Policy.RECOMPUTE not in instance.policies or instance.recomputations != 1:
        return "labels along the layers need layers that are computed again once at most"
    return (
        "labels along the layers cannot write activations to remote memory (policy stash)"
        if Policy.STASH in instance.policies
        else ""
    )


def retain(pairs: Pairs, source: str) -> None:
    """Search every pair and mode; the run hears of plans and bounds, the pairs of bounds."""
    instance = pairs.instance
    choices = RematMilp.choices(instance)
    bounds = {choice: pairs.bounds[choice[1], choice[0]] for choice in choices}
    for choice in sorted(choices, key=lambda choice: (bounds[choice], choice)):
        if bounds[choice] < pairs.upper:
            _Choice(pairs, choice, bounds, source).run()
    for tiles, batch, _ in choices:
        if pairs.bounds[batch, tiles] >= UNLIMITED:
            pairs.infeasible.add((batch, tiles))


class _Choice:
    """One number of I/O tiles, microbatch and mode."""

    def __init__(
        self,
        pairs: Pairs,
        choice: tuple[int, int, Mode],
        bounds: dict[tuple[int, int, Mode], int],
        source: str,
    ) -> None:
        self.pairs, self.choice, self.bounds, self.source = pairs, choice, bounds, source
        self.step = Step(pairs.instance, *choice)

    def run(self) -> None:
        """Search with ever more labels, until they prove something or tell no more."""
        if self.step.infeasible:
            self._raise(NONE)
            return
        chain = self.pairs.instance.chain
        going = self.pairs.keep_going
        tuning = self.pairs.tuning
        labels = Labels(self.step, retaining=not chain, keep_going=going, tuning=tuning)
        self._raise(labels.bound)
        plain: Labels | None = None
        for most in tuning.remat.widths:
            self.pairs.keep_going()
            if self.bounds[self.choice] >= self.pairs.upper:
                return
            upper = self._upper()
            found = labels.search(upper, most, self.pairs.time_left)
            self.pairs.progress.require_time()
            if not self._offer(found) and not chain:
                # What is retained may be too much: recompute in the canonical order.
                plain = plain or Labels(self.step, retaining=False, keep_going=going, tuning=tuning)
                self._offer(plain.search(upper, most, self.pairs.time_left))
            self._raise(found.bound)
            if found.complete:
                return

    def _upper(self) -> int:
        """Return the cycles computed again from which on a plan is no better."""
        upper = self.pairs.upper
        return NONE if upper >= UNLIMITED else self.step.most_again(upper - 1) + 1

    def _offer(self, found: Found) -> bool:
        """Offer a plan if there is one and it is possible; return False if it is not."""
        if found.again >= NONE:
            return True
        instance, step = self.pairs.instance, self.step
        policy = [
            Policy.RECOMPUTE if layer in found.dropped else step.idle_policy(layer)
            for layer in range(step.n)
        ]
        plan = step.plan(policy, None if instance.chain else list(found.recompute))
        return not self.pairs.progress.offer_if_valid(plan, self.source)

    def _raise(self, again: int) -> None:
        """Note cycles that any better plan computes again, `NONE`: there is none."""
        pairs, (tiles, batch, _) = self.pairs, self.choice
        bound = pairs.upper if again >= NONE else min(self.step.time(again), pairs.upper)
        self.bounds[self.choice] = max(self.bounds[self.choice], bound)
        least = min(value for (t, b, _), value in self.bounds.items() if (t, b) == (tiles, batch))
        pairs.bounds[batch, tiles] = max(pairs.bounds[batch, tiles], least)
        whole = min(pairs.bounds.values())
        if whole < UNLIMITED:
            pairs.progress.raise_bound(min(whole, pairs.upper), "labels along the layers")
