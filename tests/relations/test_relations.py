"""Every relation holds for every kind and every method, on a few instances of each.

More of them: ``python -m tests.relations --seeds 0 1000``.
"""

from __future__ import annotations

import pytest

from tests.relations.relation import NO_WORSE, SAME, Answer, Prediction, Relation, scaled, wrong
from tests.relations.sweep import KINDS, Sweep, methods

EXACT, OTHER = 7, 2
"""Instances for methods that prove their answers, and for others, of which bounds are compared."""


@pytest.mark.parametrize(("kind", "method"), [(k, m) for k in KINDS for m in methods(k)])
def test_answers_to_related_instances_agree(kind: str, method: str) -> None:
    seeds = range(EXACT if methods(kind)[method].exact else OTHER)
    assert [*Sweep(kind, method).wrong(seeds)] == []


@pytest.mark.parametrize(
    ("prediction", "first", "then", "told"),
    [
        (NO_WORSE, Answer(True, 7, 7, True), Answer(True, 7, 3, False), ""),
        (NO_WORSE, Answer(True, 7, 7, True), Answer(True, 8, 3, False), "answer 8 above"),
        (NO_WORSE, Answer(True, 7, 6, False), Answer(True, 8, 3, False), ""),
        (NO_WORSE, Answer(True, 7, 6, False), Answer(True, 9, 8, False), "bound 8 above"),
        (NO_WORSE, Answer(True, 7, 7, True), Answer(None, None, 3, False), "no answer"),
        (NO_WORSE, Answer(True, 7, 6, False), Answer(False, None, None, False), "infeasible"),
        (NO_WORSE, Answer(False, None, None, False), Answer(True, 7, 7, True), ""),
        (SAME, Answer(False, None, None, False), Answer(True, 7, 7, True), "feasible"),
        (SAME, Answer(True, 7, 5, False), Answer(True, 4, 3, False), "below the bound"),
        (scaled(3), Answer(True, 7, 7, True), Answer(True, 21, 21, True), ""),
        (scaled(3), Answer(True, 7, 7, True), Answer(True, 20, 20, True), "below the bound"),
    ],
)
def test_what_cannot_be_true_is_told(
    prediction: Prediction, first: Answer, then: Answer, told: str
) -> None:
    found = wrong(Relation("any", lambda one: one, prediction), first, then, exact=True)
    assert bool(found) == bool(told)
    assert all(told in one for one in found)
