"""Structured instances of all kinds, and what their soak says of claims."""

from __future__ import annotations

import pytest

from benchmarks.soak_structured import BEST, Soak, disagreements
from stagepack.result import Status
from tests.structured import KINDS, large, small

OPTIMAL, FEASIBLE, INFEASIBLE = Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE


@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_is_an_instance_small_and_large(kind: str) -> None:
    for number in range(len(KINDS[kind].SHAPES)):
        tiny, long = small(kind, number), large(kind, number, 70)
        assert tiny.digest == small(kind, number).digest
        assert long.digest == large(kind, number, 70).digest
        assert tiny.name.rpartition("-")[0] == long.name.rpartition("-")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_methods_agree_on_some(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    soak = Soak()
    for number in (1, 2, 4):
        soak.run(kind, number, 30)
    soak.tell()
    assert capsys.readouterr().out.endswith("0 disagreements\n")
    assert kind in BEST
    assert soak.counts[kind, "instances"] == 3


def test_claims_that_contradict_one_another_are_told() -> None:
    good = [("dp", OPTIMAL, 7, 7), ("greedy", FEASIBLE, 9, 5), ("all", OPTIMAL, 7, 7)]
    assert not [*disagreements(good, False)]
    for wrong, what in (
        (("bad", INFEASIBLE, None, None), "there is none"),
        (("bad", FEASIBLE, 9, 8), "bound 8"),
        (("bad", OPTIMAL, 8, 7), "8 is the optimum"),
    ):
        (told,) = disagreements([*good, wrong], False)
        assert "bad" in told
        assert what in told
    assert not [*disagreements([*good, ("any fit", OPTIMAL, 8, 7)], True)]
