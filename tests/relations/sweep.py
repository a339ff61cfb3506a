"""Answers to instances of every kind and to what relations make of them, by every method."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from stagepack import kinds
from stagepack.errors import InputError
from stagepack.methods import AnyMethod
from stagepack.solve import solve
from tests.relations.relation import LONGER, Answer, Relation, wrong

PLANS = "plans"
"""What is no kind: plans of models of several ones."""
KINDS = (*(kind.family for kind in kinds.KINDS.values() if kind.home == "stagepack"), PLANS)
LIMIT, SOME = 5.0, 0.2
"""Seconds of an exact answer, which next to no instance needs, and of others."""


@functools.cache
def methods(family: str) -> dict[str, AnyMethod]:
    """Return the methods of a kind by name: all that claim to be exact, and bounds of others."""
    if family == PLANS:
        return {"plan": AnyMethod(name="plan", kind=PLANS, exact=True, description="", run=_no_run)}
    table = import_module(f"stagepack.methods.{family}").METHODS
    return {method.name: method for method in table}


def _no_run(*_: object) -> None:
    """Stand for what plans have no need of."""


class Sweep:
    """What a method says of related instances of a kind.

    Parameters
    ----------
    family : str
        The kind's name of folders.
    method : str
    """

    def __init__(self, family: str, method: str) -> None:
        self._family = family
        self._cases = import_module(f"tests.relations.{family}")
        self._method = methods(family)[method]
        self.answers = 0

    def wrong(self, seeds: Iterable[int], only: str = "") -> Iterator[str]:
        """Yield what cannot be true of the answers to the instances of some seeds."""
        for seed in seeds:
            given = self._cases.instance(seed)
            first = self._answer(given)
            if first is None:
                continue
            relation: Relation
            for relation in (*self._cases.RELATIONS, LONGER):
                changed = relation.change(given) if only in relation.name else None
                then = None if changed is None else self._answer(changed, relation.longer)
                if then is not None:
                    exact = self._method.exact and not self._method.unproved(changed)
                    fits = str(given.objective) == "fit" and self._family != PLANS
                    for trouble in wrong(relation, first, then, exact=exact, fits=fits):
                        yield f"{self._method.name}, seed {seed}, {relation.name}: {trouble}"

    def _answer(self, given: Any, longer: int = 1) -> Answer | None:
        """Return what the method says within its limit; None where it does not apply."""
        if self._method.unsupported(given) or self._method.declines(given):
            return None
        limit = longer * (LIMIT if self._method.exact else SOME)
        try:
            if self._family == PLANS:
                result = self._cases.answer(given, limit)
            else:
                result = solve(given, self._method.name, time_limit=limit)
        except InputError:  # too large a model
            return None
        self.answers += 1
        return Answer.of(result)
