from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.schedule import programs
from stagepack.heuristics.schedule.rules import RULES, apply, depths, loop_rings, one_by_one
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.schedule import (
    PipelineSchedule,
    ScheduleSolution,
    measure,
    memory_arcs,
)
from stagepack.instances.schedule.ancestors import KEPT_AS
from stagepack.instances.schedule.reasons import reasons
from tests.heuristics.schedule.cases import looped, vee, zero_bubble
from tests.random_schedules import random_schedule

FUSED = PipelineSchedule.from_arrays([1] * 4, [2] * 4, microbatches=8)


def value(name: str, instance: PipelineSchedule) -> int:
    solution, reason = apply(RULES[name], instance)
    assert solution is not None, reason
    assert instance.check(solution) == ()
    return int(instance.evaluate(solution))


def in_flight(name: str, instance: PipelineSchedule) -> list[int]:
    solution, _ = apply(RULES[name], instance)
    assert solution is not None
    return [stage.in_flight for stage in measure(instance, solution).stages]


@pytest.mark.parametrize(("p", "m"), [(4, 8), (4, 4), (8, 32), (2, 1), (1, 3), (6, 2)])
def test_gpipe_and_1f1b_have_the_known_length(p: int, m: int) -> None:
    instance = FUSED.replace(
        forward=[1] * p, backward=[2] * p, microbatches=m, devices=None, edges=None, latency=0,
        memory_forward=0, memory_backward=0, memory_weight=0, optimizer=0,
    )  # fmt: skip
    assert value("gpipe", instance) == value("1f1b", instance) == 3 * (m + p - 1)
    assert in_flight("gpipe", instance) == [m] * p
    assert in_flight("1f1b", instance) == [min(m, p - s) for s in range(p)]


def test_their_bubble_is_the_known_part() -> None:
    for name in ("gpipe", "1f1b"):
        solution, _ = apply(RULES[name], FUSED)
        assert solution is not None
        assert measure(FUSED, solution).step_bubble == pytest.approx(3 / (8 + 3))


@pytest.mark.parametrize(("d", "rounds", "m"), [(4, 2, 8), (4, 3, 8), (8, 2, 32), (2, 4, 6)])
def test_interleaving_divides_the_bubble(d: int, rounds: int, m: int) -> None:
    # Narayanan et al. 2021: (d - 1) (F + B) / rounds of what a device takes for a microbatch.
    assert value("interleaved-1f1b", looped(d, rounds, m)) == 3 * m * rounds + 3 * (d - 1)


def test_interleaving_keeps_fewer_in_flight_than_gpipe() -> None:
    instance = looped(4, 2, 12)
    assert max(in_flight("interleaved-1f1b", instance)) == 8
    assert max(in_flight("gpipe", instance)) == 12


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 32), (3, 12)])
def test_zero_bubble_has_the_known_spans(p: int, m: int) -> None:
    instance = zero_bubble(p, m, 1, 1, 1, None)
    assert value("zb-h1", instance) == 3 * m + p - 1
    assert value("zb-h2", instance) == 3 * m
    for name, microbatches in (("zb-h1", p), ("zb-h2", 2 * p - 1)):
        solution, _ = apply(RULES[name], instance)
        assert solution is not None
        assert measure(instance, solution).devices[0].peak_memory == 2 * microbatches


@pytest.mark.parametrize(("d", "m"), [(2, 4), (4, 8), (4, 16), (8, 16)])
def test_the_v_has_no_bubble_in_the_memory_of_1f1b(d: int, m: int) -> None:
    assert value("zb-v", vee(d, m, limit=4 * d)) == 6 * m


@pytest.mark.parametrize("m", [1, 3, 7])
def test_the_v_holds_with_few_microbatches(m: int) -> None:
    assert value("zb-v", vee(4, m)) >= 6 * m


TORCH = {
    "Interleaved1F1B": "interleaved-1f1b",
    "LoopedBFS": "looped-bfs",
    "InterleavedZeroBubble": "interleaved-zero-bubble",
    "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
}
"""What `torch.distributed.pipelining` calls our rules."""

ORDERS = Path(__file__).parents[2] / "data" / "torch_orders.json"
"""What PyTorch 2.13.0 makes devices run, as it writes it: stage, operation, microbatch."""


@pytest.mark.parametrize("case", json.loads(ORDERS.read_text()))
def test_rules_of_torch_do_the_same_action_for_action(case: dict[str, Any]) -> None:
    d, v, m = case["devices"], case["stages of a device"], case["microbatches"]
    rule = RULES[TORCH[case["schedule"]]]
    devices = list(range(d)) * v if rule.name[0] in "il" else [*range(d), *reversed(range(d))]
    instance = looped(d, v, m).replace(devices=devices, weight=[1] * d * v)
    operations = instance.operations
    wanted = []
    for text in " ".join(case["orders"]).split():
        stage, name, i = re.findall(r"\d+|[A-Z]", text)
        if rule.name == "looped-bfs" and name == "B":
            i = m - 1 - int(i)  # backward from the last microbatch, which is as long
        # I and W are two parts of B.
        kinds = {"F": [0], "B": [1, 2], "I": [1], "W": [2]}[name]
        wanted += [operations.op(int(stage), kind, int(i)) for kind in kinds]
    assert rule.order(instance, lambda _: None).tolist() == wanted


def test_the_zero_bubble_of_torch_has_the_known_length() -> None:
    # Measured by replaying what PyTorch wrote: 8 devices, 2 stages each, 16 microbatches.
    instance = PipelineSchedule.from_arrays(
        [500] * 16, [500] * 16, [500] * 16, microbatches=16, devices=[*range(8), *range(8)],
        latency=20,
    )  # fmt: skip
    assert value("interleaved-zero-bubble", instance) == 52220
    assert value("interleaved-zero-bubble", instance.replace(microbatches=32)) == 100220


def test_the_loop_of_popxl() -> None:
    instance = FUSED.replace(microbatches=14)
    assert value("popxl", instance) == 3 * (14 + 3)
    assert in_flight("popxl", instance) == [7, 5, 3, 1]
    assert loop_rings(instance) == (7, 5, 3, 0)  # the last stage uses it in the step that made it
    assert RULES["popxl"].remark(instance) == (
        "slots of the stash rings: stage 0 7, stage 1 5, stage 2 3, stage 3 none, "
        "each tensor that crosses an edge 2"
    )
    assert (
        "at least 2 * 7 = 14 microbatches, not 13"
        in apply(RULES["popxl"], instance.replace(microbatches=13))[1]
    )


def test_the_loop_of_popxl_without_training() -> None:
    instance = PipelineSchedule.from_arrays([2] * 3, microbatches=6)
    assert value("popxl", instance) == 2 * (6 + 2)
    assert apply(RULES["popxl"], instance.replace(microbatches=5))[0] is None
    assert RULES["popxl"].remark(instance).endswith("rings: each tensor that crosses an edge 2")


def test_a_rule_beyond_the_memory_is_not_offered() -> None:
    solution, reason = apply(RULES["zb-h2"], zero_bubble(4, 8, 1, 1, 1, 8))
    assert solution is None
    assert reason == "zb-h2 needs 14 on device 0, 6 more than the limit of 8"


@pytest.mark.parametrize(
    ("name", "instance", "reason"),
    [
        ("1f1b", looped(2, 2, 4), "one stage a device"),
        ("1f1b", PipelineSchedule.from_arrays([1, 1], microbatches=2), "backward"),
        ("zb-h1", FUSED, "split into B and W"),
        ("zb-v", zero_bubble(4, 8, 1, 1, 1, None), "shape of a V"),
        ("interleaved-1f1b", FUSED, "rounds of stages"),
        ("interleaved-1f1b", looped(2, 2, 5), "2 equal rounds, not 5"),
        ("looped-bfs", FUSED, "rounds of stages"),
        ("interleaved-zero-bubble", looped(2, 2, 4), "split into B and W"),
        ("dualpipe-v", vee(4, 7), "as many microbatches as stages, 8, not 7"),
        ("popxl", FUSED.replace(edges=[(0, 2), (2, 1), (1, 3)], latency=0), "the chain"),
    ],
)
def test_reasons_against_a_rule(name: str, instance: PipelineSchedule, reason: str) -> None:
    solution, given = apply(RULES[name], instance)
    assert solution is None
    assert reason in given
    assert given == RULES[name].unsupported(instance)


@pytest.mark.parametrize("seed", range(60))
def test_what_a_rule_gives_is_valid(seed: int) -> None:
    instance = random_schedule(seed)
    applied = 0
    for rule in RULES.values():
        solution, reason = apply(rule, instance)
        assert (solution is None) == bool(reason)
        if solution is not None:
            applied += 1
            assert instance.check(solution) == (), rule.name
    assert applied or instance.limit is not None


@pytest.mark.parametrize("name", RULES)
def test_orders_do_not_depend_on_durations(name: str) -> None:
    instances = {
        "zb-v": vee(4, 9),
        "dualpipe-v": vee(4, 9),
        "interleaved-1f1b": looped(3, 2, 6),
        "interleaved-zero-bubble": looped(3, 2, 6).replace(weight=[1] * 6),
        "looped-bfs": looped(3, 2, 6),
        "zb-h1": zero_bubble(3, 5, 1, 1, 1, None),
        "zb-h2": zero_bubble(3, 5, 1, 1, 1, None),
    }
    instance = instances.get(name, FUSED.replace(microbatches=14))
    longer = instance.replace(forward=np.arange(instance.p) + 3)
    one, other = (RULES[name].order(each, lambda _: None) for each in (instance, longer))
    assert np.array_equal(one, other)


def test_a_program_looks_several_times_and_is_complete() -> None:
    """16,000 stages were written down without a look, one by one, for seconds."""
    looks: list[int] = []
    two = np.arange(2_500) // 2
    wide = PipelineSchedule.from_arrays([1] * 2_500, [1] * 2_500, microbatches=1, devices=two)
    assert len(RULES["gpipe"].order(wide, looks.append)) == 5_000
    assert len(looks) == 5  # two runs a stage
    program = programs.Program(FUSED, looks.append)
    program.run(3, (0, 0))
    with pytest.raises(ValueError, match="every operation"):
        _ = program.order


def test_stages_alone_on_their_devices_are_written_down_at_once() -> None:
    """Four runs of each of 16,000 stages took a fifth of a second, rule by rule."""
    looks: list[int] = []
    wide = PipelineSchedule.from_arrays([1] * 2_500, [1] * 2_500, microbatches=1)
    assert len(RULES["1f1b"].order(wide, looks.append)) == 5_000
    assert len(looks) == 1


def test_stages_by_themselves_do_what_a_program_says() -> None:
    instance = FUSED.replace(devices=[3, 1, 0, 2])
    m, ahead = instance.microbatches, np.arange(instance.p) + 1
    found = programs.stage_by_stage(instance, lambda _: None, (ahead, (0,)), (m, (1, 0, 2)))
    program = programs.Program(instance, lambda _: None)
    for s in np.argsort(instance.devices).tolist():
        program.run(int(ahead[s]), (s, 0))
        program.run(int(m[s]), (s, 1), (s, 0), (s, 2))
    assert found.tolist() == program.order.tolist()


def test_unlike_numbers_of_microbatches_cost_no_more_than_they_are() -> None:
    """A table of the most microbatches by all stages of a device had 300 times as many places."""
    many = PipelineSchedule.from_arrays(
        [1] * 301, microbatches=[200_000] + [1] * 300, devices=[0] * 301, edges=[]
    )
    looks: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "PART", 1_000)
        order = one_by_one(many, looks.append)
    assert sorted(order.tolist()) == list(range(200_300))
    assert sum(looks) < 4 * 200_300


def test_depths_count_the_longest_chain() -> None:
    tree = PipelineSchedule.from_arrays([1] * 4, microbatches=1, edges=[(0, 1), (1, 2), (0, 3)])
    assert depths(tree).tolist() == [3, 2, 1, 1]


def test_what_no_stage_needs_pairs_for_is_linear() -> None:
    """10,000 stages: sets of all stages above each took gigabytes, pairs of them minutes."""
    p = 10_000
    instance = PipelineSchedule.from_arrays(
        [3] * p, [4] * p, microbatches=1, memory_forward=1, memory_backward=-1, limit=1
    )
    assert reasons(instance) == ()
    befores, _ = memory_arcs(instance)
    assert not len(befores)
    solution, _ = apply(RULES["gpipe"], instance)
    assert solution is not None
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == 7 * p
    assert KEPT_AS not in vars(instance)


def test_one_microbatch_after_the_other_holds_least() -> None:
    tight = FUSED.replace(memory_forward=1, memory_backward=-1, limit=1)
    timing = Timing(tight)
    order = one_by_one(tight, lambda _: None)
    assert timing.fits(order)
    assert not timing.fits(RULES["gpipe"].order(tight, lambda _: None))
    start = timing.best(order)
    assert start is not None
    assert tight.check(ScheduleSolution.of(tight, start)) == ()
