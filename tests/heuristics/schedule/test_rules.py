from __future__ import annotations

import ast
import itertools
import json
import re
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import pytest

from stagepack.heuristics.schedule import folds
from stagepack.heuristics.schedule.patterns import written
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

DATA = Path(__file__).parents[2] / "data"
ORDERS = json.loads((DATA / "torch_orders.json").read_text())
"""What PyTorch 2.13.0 makes devices run, as it writes it: stage, operation, microbatch."""

OTHERS = json.loads((DATA / "pattern_orders.json").read_text())
"""The same of sail-sg/zero-bubble-pipeline-parallelism 39f2c186, `zbv_greedy`, `v1f1b` and
`group_interleaved_1f1b`, and of deepseek-ai/DualPipe, `DualPipe.step`."""


def only_order(name: str, instance: PipelineSchedule) -> list[int]:
    (order,) = RULES[name].orders(instance, lambda _: None)
    return list(order.tolist())


def as_written(instance: PipelineSchedule, orders: list[str]) -> list[int]:
    """Return operations from texts such as 0F3; where W's are not written, B is both."""
    apart = any(kind in " ".join(orders) for kind in "IW")
    kinds = {"F": [0], "I": [1], "W": [2], "B": [1] if apart and "I" not in str(orders) else [1, 2]}
    found = []
    for text in " ".join(orders).split():
        stage, name, i = re.findall(r"\d+|[A-Z]", text)
        every = kinds[name][: len(instance.kinds) - 1]
        found += [instance.operations.op(int(stage), kind, int(i)) for kind in every]
    return found


@pytest.mark.parametrize("case", ORDERS)
def test_rules_of_torch_do_the_same_action_for_action(case: dict[str, Any]) -> None:
    d, v, m = case["devices"], case["stages of a device"], case["microbatches"]
    name = TORCH[case["schedule"]]
    devices = list(range(d)) * v if name[0] in "il" else [*range(d), *reversed(range(d))]
    instance = looped(d, v, m).replace(devices=devices, weight=[1] * d * v)
    orders = case["orders"]
    if name == "looped-bfs":  # backward from the last microbatch, which is as long
        orders = [re.sub(r"B(\d+)", lambda i: f"B{m - 1 - int(i[1])}", text) for text in orders]
    assert only_order(name, instance) == as_written(instance, orders)


@pytest.mark.parametrize("case", OTHERS)
def test_rules_do_what_their_authors_code_does(case: dict[str, Any]) -> None:
    d, v, m = case["devices"], case["stages of a device"], case["microbatches"]
    name = case["rule"]
    if name == "dualpipe":
        instance = both_ways([*range(d)], m)
    else:
        devices = list(range(d)) * v if name[0] == "g" else [*range(d), *reversed(range(d))]
        weight = None if name == "v-1f1b" else [1] * d * v
        instance = looped(d, v, m).replace(devices=devices, weight=weight)
    found = [order.tolist() for order in RULES[name].orders(instance, lambda _: None)]
    assert as_written(instance, case["orders"]) in found
    assert len(found) == 1 or name == "grouped-interleaving"


def both_ways(line: list[int], m: int) -> PipelineSchedule:
    """Return a chain on the devices of `line` and another one on them in reverse, m of each."""
    p, d = len(line), max(line) + 1
    edges = [(s, s + 1) for s in range(2 * p - 1) if s != p - 1]
    return PipelineSchedule.from_arrays(
        [1] * 2 * p, [1] * 2 * p, [1] * 2 * p, microbatches=m,
        devices=[*line, *(d - 1 - at for at in line)], edges=edges,
    )  # fmt: skip


def megatron() -> dict[str, Any]:
    """Return the two functions by which Megatron-Core orders, without what its modules import."""
    try:
        files = metadata.files("megatron-core") or []
    except metadata.PackageNotFoundError:
        pytest.skip("needs megatron-core")
    path = next(file for file in files if str(file).endswith("pipeline_parallel/schedules.py"))
    wanted = ("get_pp_rank_microbatches", "get_schedule_table")
    tree = ast.parse(path.read_text())
    tree.body = [part for part in tree.body if getattr(part, "name", "") in wanted]
    found: dict[str, Any] = {"Optional": Optional, "P2PCommunicator": object}
    exec(compile(tree, str(path), "exec"), found)
    return found


@pytest.mark.parametrize(("d", "v"), [(2, 2), (3, 4), (4, 2), (4, 3), (5, 2)])
def test_megatron_core_makes_the_same_orders(d: int, v: int) -> None:
    theirs = megatron()
    for m in range(d, 5 * d + 1):
        instance = looped(d, v, m)
        sizes = [each for each in range(d, m + 1) if not 0 < m % each < d]
        orders = RULES["megatron"].orders(instance, lambda _: None)
        for each, order in zip(sizes, orders, strict=True):
            table = theirs["get_schedule_table"](m, v, each)
            wanted = []
            for rank in range(d):
                group = SimpleNamespace(size=lambda: d, rank=lambda rank=rank: rank)
                at = SimpleNamespace(pp_group=group, virtual_pipeline_model_parallel_size=v)
                numbers = theirs["get_pp_rank_microbatches"](m, v, each, p2p_communicator=at)
                ahead, rest = numbers[2:]
                op = instance.operations.op
                forward = [op(chunk * d + rank, 0, i) for i, chunk in table]
                backward = [op((v - 1 - chunk) * d + rank, 1, i) for i, chunk in table]
                turns = zip(forward[ahead:], backward[:rest], strict=True)
                wanted += [*forward[:ahead], *itertools.chain(*turns), *backward[rest:]]
            assert order.tolist() == wanted


@pytest.mark.parametrize(("d", "m"), [(4, 16), (6, 24), (7, 21), (8, 24)])
def test_patterns_of_a_v_hold_the_known_parts_of_1f1b(d: int, m: int) -> None:
    """Qi et al. 2024: 1F1B holds d microbatches of both stages of a device, 4 d units here."""
    limits = {"v-half": 2 * d + 4, "v-min": (4 * d + 2) // 3 + 6, "v-1f1b": 8 * d // 3 + 4}
    for name, most in limits.items():
        instance = vee(d, m)
        solution, _ = apply(RULES[name], instance)
        assert solution is not None
        held = max(device.peak_memory for device in measure(instance, solution).devices)
        assert held <= most < 4 * d
        assert value(name, vee(d, m, limit=held)) == value(name, instance)
        assert (
            f"more than the limit of {held - 1:,}"
            in apply(RULES[name], vee(d, m, limit=held - 1))[1]
        )


@pytest.mark.parametrize("d", [2, 4, 6, 10])
def test_waves_have_the_known_bubbles(d: int) -> None:
    """Of F and B alike, d microbatches: d - 2 of 3 d - 2 slots idle in Chimera, half in BitPipe."""
    ways = {
        "chimera": (both_ways([*range(d)], d // 2), 3 * d - 2),
        "bitpipe": (both_ways([*range(d), *reversed(range(d))], d // 2), 5 * d - 2),
        "hanayo": (looped(d, 2, d).replace(devices=[*range(d), *reversed(range(d))]), 6 * d - 2),
    }
    for name, (instance, known) in ways.items():
        alike = instance.replace(backward=[1] * instance.p, weight=None)
        assert value(name, alike) == known
    waves = looped(d, 4, 2 * d).replace(devices=[*range(d), *reversed(range(d))] * 2)
    assert value("hanayo", waves) > 0
    assert "one or more V's" in apply(RULES["hanayo"], looped(d, 3, d))[1]


def test_groups_of_any_size_are_tried_within_the_memory() -> None:
    """16 stages on 4 devices: 66,357 cycles in groups of two, which nothing else had found."""
    forward = [1593, *[1449] * 14, 2028]
    instance = PipelineSchedule.from_arrays(
        forward, [766] * 16, [308] * 16, microbatches=4, devices=[*range(4)] * 4, latency=76,
        memory_forward=2, memory_backward=-1, memory_weight=-1, limit=[20, 18, 16, 14],
    )  # fmt: skip
    assert value("grouped-interleaving", instance) == 66_357
    reason = apply(RULES["grouped-interleaving"], instance.replace(limit=6))[1]
    assert "more than the limit of 6" in reason


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
        "megatron": looped(3, 2, 7),
        "grouped-interleaving": looped(3, 2, 7),
        "v-half": vee(4, 9),
        "v-min": vee(4, 9),
        "v-1f1b": vee(4, 9),
        "hanayo": vee(4, 9),
        "dualpipe": both_ways([0, 1, 2, 3], 5),
        "chimera": both_ways([0, 1, 2, 3], 5),
        "bitpipe": both_ways([0, 1, 1, 0], 5),
        "zb-h1": zero_bubble(3, 5, 1, 1, 1, None),
        "zb-h2": zero_bubble(3, 5, 1, 1, 1, None),
    }
    instance = instances.get(name, FUSED.replace(microbatches=14))
    longer = instance.replace(forward=np.arange(instance.p) + 3)
    one, other = (
        [order.tolist() for order in RULES[name].orders(each, lambda _: None)]
        for each in (instance, longer)
    )
    assert one == other


def test_orders_look_after_every_device() -> None:
    looks: list[int] = []
    wide = PipelineSchedule.from_arrays([1] * 2_500, [1] * 2_500, microbatches=1)
    (order,) = RULES["1f1b"].orders(wide, looks.append)
    assert len(order) == 5_000
    assert len(looks) > 2_500


def test_what_is_written_down_leaves_out_what_there_is_not() -> None:
    moment = written(FUSED, lambda _: None, [[(9, ((0, 0), (0, 1), (0, 2))), (3, ((0, 0),))]])
    assert moment[:16].tolist() == [*range(0, 24, 3), *range(1, 24, 3)]


def test_a_pattern_of_too_many_slots_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "MOST_SLOTS", 367)
    assert apply(RULES["v-half"], vee(4, 8))[1] == "is for patterns of up to 367 slots, not 368"


def test_unlike_numbers_of_microbatches_cost_no_more_than_they_are() -> None:
    """A table of the most microbatches by all stages of a device had 300 times as many places."""
    many = PipelineSchedule.from_arrays(
        [1] * 301, microbatches=[200_000] + [1] * 300, devices=[0] * 301, edges=[]
    )
    looks: list[int] = []
    order = one_by_one(many, looks.append)
    assert sorted(order.tolist()) == list(range(200_300))
    assert sum(looks) < 20 * 200_300


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
    assert not timing.fits(np.array(only_order("gpipe", tight)))
    start = timing.best(order)
    assert start is not None
    assert tight.check(ScheduleSolution.of(tight, start)) == ()
