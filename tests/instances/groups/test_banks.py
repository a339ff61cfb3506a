"""Which buffers should not share a bank, by hand."""

from __future__ import annotations

from stagepack.instances.groups import GroupingSolution
from stagepack.instances.groups.banks import bank_conflicts, bank_pairs
from stagepack.instances.groups.lmem import copies
from tests.instances.groups.networks import CHIP, block

PLAN = GroupingSolution((0, 3), ((1, 1, 1, 1),))


def test_operands_and_transfers_of_a_row_are_apart() -> None:
    table = PLAN.timetable(block(), 0)
    names = [copy.name for copy in copies(table)]
    assert names == ["x", "a.w0", "b.w0", "a", "b", "s"]
    assert {frozenset((names[one], names[other])) for one, other in bank_pairs(table)} == {
        frozenset(pair)
        for pair in (
            ("x", "a.w0"),  # a reads x and its weights and writes a ...
            ("x", "a"),
            ("a.w0", "a"),
            ("x", "b.w0"),  # ... while the weights of b are loaded
            ("a.w0", "b.w0"),
            ("a", "b.w0"),
            ("a", "b"),
            ("b", "b.w0"),
            ("x", "b"),  # s reads both, and may be written over b
            ("x", "s"),
        )
    }


def test_pairs_in_one_bank_are_counted() -> None:
    whole = block()
    bank = CHIP.memory // CHIP.banks
    names = [copy.name for copy in copies(PLAN.timetable(whole, 0))]
    place = {"x": 0, "a.w0": 128, "b.w0": bank, "a": 2 * bank, "b": 3 * bank, "s": 3 * bank}
    plan = PLAN.with_group(0, (), (), tuple(place[name] for name in names))
    assert bank_conflicts(whole, plan) == 1  # x and the weights of a
    assert whole.secondary(plan) == 1
