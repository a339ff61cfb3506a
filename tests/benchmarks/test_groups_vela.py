"""What the benchmark of layer grouping counts, on plans that can be counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

import stagepack as sp
from benchmarks.groups_vela import Cascade, Vela, again, cascades, peers, stores, traffic
from stagepack.instances.groups import GroupingSolution, LayerGrouping


def chain(**given: Any) -> LayerGrouping:
    instance = sp.load("groups/random/blocks", operators=3, channels=16, rows=8, **given)
    assert isinstance(instance, LayerGrouping)
    return instance


def test_traffic_is_what_leaves_and_enters_memory() -> None:
    instance = chain()
    tensor = 16 * 8 * 8
    whole = GroupingSolution((0, 3), ((1, 1, 1, 1),))
    apart = GroupingSolution.from_global_memory(3)
    small = traffic(instance, 1 << 20)
    assert stores(small, whole) == tensor
    assert small.evaluate(whole) == 2 * tensor
    assert stores(small, apart) == 3 * tensor
    by_choice = small.replace(standalone="any")  # what fits stays in local memory otherwise
    assert by_choice.evaluate(apart) == 3 * tensor + 4 * tensor  # the sum reads two


def test_halos_are_computed_again() -> None:
    instance = chain()
    macs = [16 * 16 * 64, 9 * 16 * 16 * 64]  # of 1 x 1 and 3 x 3
    assert again(instance, GroupingSolution((0, 3), ((1, 1, 1, 1),))) == 0
    # Of two slices each computes one row of the first convolution for its neighbour.
    halves = GroupingSolution((0, 3), ((1, 1, 2, 1),))
    assert again(instance, halves) == pytest.approx(macs[0] * 2 / 8 / sum(macs))


def test_what_vela_says_of_its_cascades() -> None:
    said = (
        "\tCascades:\n\t\t2: 0 -> 2, size: 430112\n\t\t9: 8 -> 9, size: 428784\n\nNetwork summary"
    )
    assert cascades(said) == (Cascade(0, 2, 430_112), Cascade(8, 9, 428_784))
    assert Vela(435_600, 0, 0, cascades(said)).told().split() == ["2", "5", "430,112"]


def test_without_vela_the_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    peers("no-such-vela", "")
    assert "no command 'no-such-vela' here" in capsys.readouterr().out
