"""Plans as data: phases, JSON, the canonical order of recomputation."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.errors import InputError
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from tests.instances.phases.examples import two_groups, two_layers, unet
from tests.random_phases import random_phases, random_plan


def chain(n: int, tape: tuple[int, ...] = (), **changes: Any) -> PhaseSchedule:
    return PhaseSchedule.from_arrays(
        [0] * n,
        [1] * n,
        [1] * (n + 1),
        tape=[int(layer in tape) for layer in range(n)],
        training=True,
        policies=["stash", "keep", "recompute"],
        modes=["compute"],
        **changes,
    )


def test_training_turns_round_in_the_last_group() -> None:
    solution = PhaseSolution((0, 1, 3, 4), ("compute",) * 5, policy=("stash",) * 4)
    phases = solution.phases(chain(4))
    assert [phase.name for phase in phases] == ["F0", "F1", "FB2", "B1", "B0"]
    assert [(phase.first, phase.end) for phase in phases][2:4] == [(3, 4), (1, 3)]
    assert [phase.index for phase in phases] == list(range(5))


def test_inference_has_forward_phases_only() -> None:
    instance = PhaseSchedule.from_arrays([0] * 3, [1] * 3, [1] * 4)
    phases = PhaseSolution((0, 2, 3), ("compute",) * 2).phases(instance)
    assert [phase.name for phase in phases] == ["F0", "F1"]


@pytest.mark.parametrize(
    ("policy", "tape", "again"),
    [
        ("KRRK", (), ((), (), (), (1, 2))),  # layer 3 reads x_3
        ("RRRR", (), ((), (), (), (0, 1, 2))),  # nobody needs anything of layer 3
        ("RRRR", (3,), ((), (), (), (0, 1, 2, 3))),
        ("RKRK", (0, 2), ((), (0,), (), (2,))),
        ("RSKR", (3,), ((), (0,), (), (3,))),
    ],
)
def test_canonical_runs_of_a_chain(policy: str, tape: Any, again: Any) -> None:
    words = {"K": "keep", "R": "recompute", "S": "stash"}
    given_policy = tuple(words[letter] for letter in policy)
    instance = chain(4, tape)
    assert PhaseSolution.canonical_recompute(instance, (0, 4), given_policy) == again
    apart = PhaseSolution.canonical_recompute(instance, (0, 1, 2, 3, 4), given_policy)
    # Alone in its group a layer is computed again for its tape only.
    assert apart == tuple(
        (layer,) if layer in tape and policy[layer] == "R" else () for layer in range(4)
    )


def test_canonical_order_with_a_skip_computes_once_what_is_needed_first() -> None:
    policy = ("recompute", "recompute", "keep", "keep")
    # Layer 3 reads x_1 going back; layer 2 reads x_2.
    assert PhaseSolution.canonical_recompute(unet(), (0, 4), policy) == ((), (), (1,), (0,))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_the_canonical_order_can_always_run(seed: int) -> None:
    instance = random_phases(seed, layers=(1, 6), recomputations=(1, 2))
    solution = random_plan(instance, np.random.default_rng(seed))
    assert "recompute" not in {violation.rule for violation in instance.check(solution)}


def test_json_round_trip() -> None:
    for solution in (
        two_groups(),
        two_groups("recompute", recompute=((0,), ()), prefetch=(True, False, False), io_tiles=3),
    ):
        data = msgspec.json.decode(msgspec.json.encode(solution.to_dict()))
        assert PhaseSolution.from_dict(data) == solution
    short = {"boundaries": [0, 2], "mode": ["compute"]}
    assert PhaseSolution.from_dict(short) == PhaseSolution((0, 2), ("compute",))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"boundaries": None}, "boundaries"),
        ({"boundaries": [0, True]}, "boundaries[1]"),
        ({"mode": "compute"}, "mode"),
        ({"mode": [1]}, "mode[0]"),
        ({"io_tiles": "many"}, "io_tiles"),
        ({"microbatch": 1.5}, "microbatch"),
        ({"policy": [None]}, "policy[0]"),
        ({"recompute": [1]}, "recompute[0]"),
        ({"recompute": [["a"]]}, "recompute[0][0]"),
        ({"prefetch": [1]}, "prefetch[0]"),
        ({"speed": 3}, "speed"),
    ],
)
def test_refusals_name_the_field(changes: Any, field: str) -> None:
    with pytest.raises(InputError) as refusal:
        PhaseSolution.from_dict({**two_groups().to_dict(), **changes})
    assert refusal.value.field == field
    with pytest.raises(InputError, match="expected object"):
        PhaseSolution.from_dict([])


def test_a_solution_without_a_shape_is_refused_by_the_checker_alone() -> None:
    assert two_layers().check(PhaseSolution((), ()))[0].rule == "boundaries"


def test_retained_outputs_are_not_computed_again_for_others() -> None:
    instance = PhaseSchedule.from_arrays(
        [1] * 4, [1] * 4, [1] * 5, backward=[1] * 4, tape=[0, 1, 0, 1], training=True,
        policies=["keep", "recompute"], skips=[(0, 3)],
    )  # fmt: skip
    words = ("recompute",) * 4

    def again(*retained: int) -> tuple[tuple[int, ...], ...]:
        return PhaseSolution.canonical_recompute(instance, (0, 4), words, retained)

    assert again() == ((), (), (), (0, 1, 2, 3))
    # x_2, which layer 1 writes, is there: layer 1 runs again for its own tape only.
    assert again(1) == ((), (1,), (), (0, 2, 3))
    assert again(0, 1, 2) == ((0,), (1,), (2,), (3,))
