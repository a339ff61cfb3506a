"""Which buffers should not share a bank, by hand."""

from __future__ import annotations

import msgspec
import pytest

from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.banks import bank_conflicts, bank_pairs
from stagepack.instances.groups.lmem import copies, in_place
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


@pytest.mark.parametrize("name", ["a.w0", "b.w0", "a.buffer", "a'", "b#0"])
@pytest.mark.parametrize("cut", [(1, 1, 1, 1), (1, 1, 4, 1)])
def test_names_do_not_matter(name: str, cut: tuple[int, ...]) -> None:
    plan = GroupingSolution((0, 3), (cut,))
    table = plan.timetable(block(), 0)
    for old in "xb":
        other = plan.timetable(_renamed(block(), old, name), 0)
        assert in_place(other) == in_place(table) != ()
        assert bank_pairs(other) == bank_pairs(table)


def _renamed(whole: LayerGrouping, old: str, new: str) -> LayerGrouping:
    """Return a network in which one tensor is called otherwise."""
    names = {old: new}

    def called(name: str) -> str:
        return names.get(name, name)

    return whole.replace(
        operators=[
            msgspec.structs.replace(op, name=called(op.name), inputs=tuple(map(called, op.inputs)))
            for op in whole.operators
        ],
        inputs=[msgspec.structs.replace(one, name=called(one.name)) for one in whole.inputs],
        outputs=list(map(called, whole.outputs)),
    )
