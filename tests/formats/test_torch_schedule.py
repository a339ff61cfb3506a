from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formats import door, solutions
from stagepack.formats.torch import schedule as torch_schedule
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from tests.random_schedules import by_list, random_schedule

# What torch 2.15 writes (_dump_csv), format compute_only, for two ranks of two stages each.
INTERLEAVED = """\
0F0,0F1,2F0,2F1,,,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,,2B2,,2B3,,0B2,,0B3
,1F0,1F1,,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,,1B2,,1B3
"""
ZBV = """\
0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,0I2,0W2,0I3,0W3
,1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,1I3,1W2,2W3,1W3
"""
DUAL_PIPE_V = """\
0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,(0F4;3B2)OVERLAP_F_B,\
(3F3;0B1)OVERLAP_F_B,(0F5;3B3)OVERLAP_F_B,(3F4;0B2)OVERLAP_F_B,3B4,(3F5;0B3)OVERLAP_F_B,3B5,\
0I4,0W4,0I5,0W5
1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,\
(1F4;2B2)OVERLAP_F_B,(2F4;1B2)OVERLAP_F_B,(1F5;2B3)OVERLAP_F_B,(2F5;1B3)OVERLAP_F_B,2B4,1B4,\
2I5,1I5,2W5,1W5
"""
# The same, format compute_comms, one stage a rank and one microbatch.
LOWERED = """\
0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD
1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_B0
"""


def saved(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "zbv.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "devices", "kinds", "m"),
    [
        (INTERLEAVED, [0, 1, 0, 1], "FB", 4),
        (ZBV, [0, 1, 1, 0], "FBW", 4),
        (DUAL_PIPE_V, [0, 1, 1, 0], "FBW", 6),
        (LOWERED, [0, 1], "FB", 1),
        ("0F0,0F1\n,1F0,1F1\n\n", [0, 1], "F", 2),
        ("\ufeff 0F0 , 0B0 \r\n", [0], "FB", 1),
    ],
)
def test_files_of_torch(text: str, devices: list[int], kinds: str, m: int, tmp_path: Path) -> None:
    path = saved(tmp_path, text)
    instance = door.read(path)
    assert (instance.name, instance.devices.tolist()) == ("zbv", devices)
    assert "".join(instance.kinds) == kinds
    assert set(instance.microbatches.tolist()) == {m}
    assert set(instance.forward.tolist()) == {1}
    solution = solutions.read_solution(path, instance)
    assert isinstance(solution, ScheduleSolution)
    assert instance.check(solution) == ()
    slow = instance.replace(forward=[7] * instance.p, latency=3)
    assert slow.check(solutions.read_solution(path, slow)) == ()


def test_every_operation_is_as_early_as_the_order_allows(tmp_path: Path) -> None:
    path = saved(tmp_path, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    instance = PipelineSchedule.from_arrays([2, 3], [4, 5], microbatches=2, latency=1)
    solution = solutions.read_solution(path, instance)
    assert solution.to_dict() == {"start": [[[0, 2], [12, 20]], [[3, 11], [6, 14]]]}


def test_a_whole_backward_pass_is_both_halves(tmp_path: Path) -> None:
    path = saved(tmp_path, "0F0,0B0\n")
    instance = PipelineSchedule.from_arrays([1], [2], [3], microbatches=1)
    assert solutions.read_solution(path, instance).to_dict() == {"start": [[[0], [1], [3]]]}


def test_context_of_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path, ZBV)
    instance = door.read(path, latency=2, capacity=5, objective="span", steps=3)
    assert instance.latency.tolist() == [2, 2, 2]
    assert instance.limit.tolist() == [5, 5]
    assert (instance.objective, instance.steps) == ("span", 3)
    with pytest.raises(InputError, match="microbatches: is what the file says"):
        door.read(path, microbatches=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0X0", r"line 1, cell 2: '0X0' is no action"),
        ("0F0,0F", "names no microbatch"),
        ("0F0,F1", "'F1' is no action"),
        ("0F0,0F0", r"cell 2: 0F0 cannot be: it was run before"),
        ("0F1,0F0", r"cell 1: 0F1 cannot be: it is the turn of microbatch 0"),
        ("0F0\n0F1", r"line 1, cell 1: stage 0 is on line 2, too"),
        ("0F0,2F0", "stage 1 does nothing"),
        ("0F0,1F0,1F1", "lacks 0F1"),
        ("0F0,0F999999999", "line 1, cell 2: 0F999999999 is of a microbatch whose predecessors"),
        ("0F0,999999999F0", "stage 1 does nothing"),
        ("0F0,0I0", "lacks 0W0"),
        ("0B0", "lacks 0F0"),
        ("0UNSHARD,0RESHARD", "holds no work"),
        ("0F0\n\n2F0", "stage 1 does nothing"),
        ("0F0\n\n1F0", "device 1 runs no stage"),
        ("0F0,\xff", "is not UTF-8"),
        ("0F0,0F1xyz", "is no action"),
        ("0F0xyz,0F1", "is no action"),
        ("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", "communication: lacks 0RECV_B0"),
        ("0SEND_F0,0F0\n1RECV_F0,1F0", "cell 1: 0SEND_F0 cannot be: it belongs behind 0F0"),
        ("0F0,0SEND_F0\n1F0,1RECV_F0", "cell 2: 1RECV_F0 cannot be: it belongs before 1F0"),
        ("0F0,0SEND_F0,0SEND_F0\n1RECV_F0,1F0", "cell 3: 0SEND_F0 cannot be: it was done before"),
        ("0F0,0SEND_F0\n1RECV_F0,1F0,1SEND_F0", "1SEND_F0 cannot be: nothing has to go there"),
        ("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1", "it is the turn of microbatch 0"),
        ("0F0,0I0,0F1,0I1,0W0,0W1\n1F0,1F1,1I0,1I1,1W0,1W1", "never ends: 0I0 and 1F1 wait"),
    ],
)
def test_wrong_files(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "schedule.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=words) as caught:
        door.read(path)
    assert caught.value.file == str(path)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0B0,0F1,0B1", "has 1 lines for 2 devices"),
        ("0F0,0F1,0B0\n1F0,1F1,1B0,1B1", "line 1: lacks 0B1"),
        ("0F0,0F1,0I0,0I1\n1F0,1F1,1B0,1B1", "0I0 is half a backward pass"),
        ("0F0,0F1,0B0,0B1,0F2\n1F0,1F1,1B0,1B1", "there are 2 microbatches"),
        ("0F0,0F1,0B0,0B1,2F0\n1F0,1F1,1B0,1B1", "there are 2 stages"),
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "never ends: 0B0 and 1F1 wait for one another"),
        ("0F0,0B0,0F1,0B1\n0F0,1F1,1B0,1B1", "stage 0 is on device 0"),
    ],
)
def test_schedules_of_another_instance(text: str, words: str, tmp_path: Path) -> None:
    instance = PipelineSchedule.from_arrays([1, 1], [1, 1], microbatches=2)
    with pytest.raises(InputError, match=words):
        solutions.read_solution(saved(tmp_path, text), instance)


def test_kinds_that_do_not_fit(tmp_path: Path) -> None:
    path = saved(tmp_path, "0F0,0B0\n")
    inference = PipelineSchedule.from_arrays([1], microbatches=1)
    with pytest.raises(InputError, match="0B0 is backward work, but the instance is inference"):
        solutions.read_solution(path, inference)
    with pytest.raises(InputError, match="only be read with their instance"):
        solutions.read_solution(path)


def chains(seed: int) -> PipelineSchedule:
    """Random instances whose stages are a chain, without limits."""
    drawn = random_schedule(seed, limit=None)
    m = int(drawn.microbatches[0])
    return drawn.replace(edges=None, latency=2, microbatches=m)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_written_is_read(seed: int, tmp_path: Path) -> None:
    instance = chains(seed)
    solution = by_list(instance)
    path = tmp_path / "schedule.csv.gz"
    for communication in (False, True):
        solutions.write_solution(instance, solution, path, communication=communication)
        again = solutions.read_solution(path, instance)
        assert isinstance(again, ScheduleSolution)
        assert instance.check(again) == ()
        assert (again.start <= solution.start).all()
        assert orders(instance, again) == orders(instance, solution)
    units = door.read(path)
    assert units.devices.tolist() == instance.devices.tolist()
    assert units.kinds == instance.kinds


def test_no_wait_is_written_unless_asked() -> None:
    """Releases of torch read 0WAIT_SEND_F0 as 0W without a microbatch."""
    instance = PipelineSchedule.from_arrays([1, 1], [1, 1], microbatches=2)
    text = torch_schedule.dump(by_list(instance), instance, communication=True).decode()
    assert "SEND_F0" in text
    assert "WAIT" not in text
    assert (
        "WAIT"
        in torch_schedule.dump(by_list(instance), instance, communication=True, waits=True).decode()
    )


def test_the_first_stage_does_its_whole_backward_pass_in_w() -> None:
    """So does torch: its 0I0 is nothing, its 0W0 takes both gradients."""
    given: dict[str, Any] = {"microbatches": 2, "memory_forward": 4,
                             "memory_backward": -3, "memory_weight": -1}  # fmt: skip
    instance = PipelineSchedule.from_arrays([2, 2], [5, 5], [3, 3], whole_first=True, **given)
    assert instance.backward is not None
    assert instance.backward.tolist() == [1, 5]
    assert instance.weight is not None
    assert instance.weight.tolist() == [7, 3]
    assert instance.memory_backward.tolist() == [0, -3]
    assert instance.memory_weight.tolist() == [-4, -1]
    text = torch_schedule.dump(by_list(instance), instance)
    assert instance.check(torch_schedule.solution(text, instance)) == ()
    with pytest.raises(InputError, match="whole_first: the backward pass is not split"):
        PipelineSchedule.from_arrays([2, 2], [5, 5], microbatches=2, whole_first=True)


def orders(instance: PipelineSchedule, solution: ScheduleSolution) -> list[list[int]]:
    by_start = np.argsort(solution.start, kind="stable")
    device = instance.operations.device[by_start]
    return [by_start[device == d].tolist() for d in range(instance.d)]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("waits", [False, True])
def test_ranks_never_wait_in_a_circle(seed: int, waits: bool) -> None:
    """Even where a send ends only as its receive begins."""
    instance = chains(seed)
    text = torch_schedule.dump(by_list(instance), instance, communication=True, waits=waits)
    rows = [line.split(",") for line in text.decode().splitlines()]
    done: list[str] = []
    at = [0] * len(rows)
    while any(place < len(row) for place, row in zip(at, rows, strict=True)):
        heads = [
            row[place] if place < len(row) else "" for place, row in zip(at, rows, strict=True)
        ]
        for rank, head in enumerate(heads):
            stage, _, rest = head.partition("SEND_")
            if not head or (stage.isdigit() and rest):
                continue
            if "RECV_" in head:
                there, _, what = head.partition("RECV_")
                maker = int(there) + (-1 if what[0] == "F" else 1)
                sender = int(instance.devices[maker])
                if heads[sender] != f"{maker}SEND_{what}":
                    continue
                done.append(heads[sender])
                at[sender] += 1
            done.append(head)
            at[rank] += 1
            break
        else:
            raise AssertionError(f"all wait: {heads}")
    check_log(instance, done, waits)


def check_log(instance: PipelineSchedule, done: list[str], waits: bool) -> None:
    """Work comes after the receive of what it needs, and what is sent after it is made."""
    place = {action: at for at, action in enumerate(done)}
    assert len(place) == len(done)
    crossing = sum(instance.devices[a] != instance.devices[b] for a, b in instance.edges) * int(
        instance.microbatches[0]
    )
    directions = 2 if instance.training else 1
    assert sum("RECV_" in action for action in done) == crossing * directions
    assert sum(action.count("WAIT_SEND") for action in done) == waits * crossing * directions
    backward = "I" if instance.split else "B"
    for action, at in place.items():
        stage, _, what = action.partition("RECV_")
        if what:
            kind = "F" if what[0] == "F" else backward
            maker = int(stage) + (-1 if kind == "F" else 1)
            assert place[f"{maker}{kind}{what[1:]}"] < at < place[f"{stage}{kind}{what[1:]}"]
    for s in range(instance.p):
        reduced = place.get(f"{s}REDUCE_GRAD")
        assert (reduced is not None) == instance.training
        if reduced is not None:
            last = f"{s}{'W' if instance.split else 'B'}{instance.microbatches[s] - 1}"
            assert place[last] < reduced


def test_what_cannot_be_written(tmp_path: Path) -> None:
    instance = PipelineSchedule.from_arrays([1, 1], microbatches=1)
    solution = by_list(instance)
    path = tmp_path / "schedule.csv"
    with pytest.raises(InputError, match="give write_solution the instance"):
        solutions.write_solution(None, solution, path)
    with pytest.raises(InputError, match="is no valid schedule: forward-dependency"):
        solutions.write_solution(instance, ScheduleSolution.of(instance, [0, 0]), path)
    apart = instance.replace(edges=[], latency=0)
    with pytest.raises(InputError, match="stages are no chain"):
        solutions.write_solution(apart, by_list(apart), path)
    with pytest.raises(InputError, match=r"end the name in \.json"):
        door.write(instance, path)
    assert not list(tmp_path.iterdir())


def ones(devices: list[int], **given: Any) -> PipelineSchedule:
    column = [1] * len(devices)
    return PipelineSchedule.from_arrays(
        **{"forward": column, "backward": column, "microbatches": 2, "devices": devices, **given}
    )


def test_torchtitan_takes_what_it_deals_so(caplog: pytest.LogCaptureFixture) -> None:
    for devices in ([0, 1, 2], [0, 1, 0, 1]):
        instance = ones(devices)
        solution = by_list(instance)
        text = solutions.written_for(instance, solution, "torchtitan", {})
        assert text == torch_schedule.dump(solution, instance)
    assert not caplog.messages
    turned = ones([0, 1, 1, 0])
    assert solutions.written_for(turned, by_list(turned), "torchtitan", {})
    assert "pipeline_parallel_schedule=ZBVZeroBubble" in caplog.messages[0]


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        (ones([0, 1, 0]), "devices: device 1 has 1 stages and device 0 has 2: torchtitan deals as"),
        (ones([0, 0, 1, 1]), "stage 1 is on device 0, and torchtitan has it on rank 1"),
        (ones([0, 1], backward=None), "backward: PyTorch runs orders in which"),
        (ones([0, 1], edges=[]), "edges: stages are no chain"),
        (ones([0, 1], edges=[], microbatches=[1, 2]), "microbatches: PyTorch runs orders"),
    ],
)
def test_what_torchtitan_cannot_do_is_named(instance: PipelineSchedule, words: str) -> None:
    with pytest.raises(InputError, match=words):
        solutions.written_for(instance, by_list(instance), "torchtitan", {})
