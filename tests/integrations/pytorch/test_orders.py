"""Orders of work that we write, lowered and simulated by torch itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.formats.torch import schedule as torch_schedule
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from tests.random_schedules import by_list, random_schedule

pytest.importorskip("torch", reason="PyTorch is not installed")
schedules: Any = pytest.importorskip("torch.distributed.pipelining.schedules")
COMPUTE = ("F", "B", "I", "W")
WAITS = hasattr(schedules, "WAIT_REDUCE_GRAD")  # asked for since 2.15, unknown to 2.13
FORMS = ["compute_only", "compute_comms"][: 1 + hasattr(schedules, "REDUCE_GRAD")]
"""What torch reads: 2.9 knows nothing of gradients that are reduced."""


def runtime(instance: PipelineSchedule) -> Any:
    """Return torch's runtime of schedules, as a rank has it, with stages that do nothing."""
    counts = np.bincount(instance.devices)
    ranks = dict(enumerate(instance.devices.tolist()))
    stages = [
        SimpleNamespace(
            num_stages=instance.p, group_rank=0, group_size=instance.d, has_backward=True,
            stage_index=at, stage_index_to_group_rank=ranks, group=None, is_first=False,
            is_last=False,
        )
        for at in range(counts[0])
    ]  # fmt: skip
    return schedules._PipelineScheduleRuntime(stages, int(instance.microbatches[0]))


def loaded(instance: PipelineSchedule, text: bytes, form: str, path: Path) -> dict[int, list[Any]]:
    """Return the actions of each rank, with sends and receives, as torch would run them."""
    path.write_bytes(text)
    schedule = runtime(instance)
    schedule._load_csv(str(path), format=form)
    actions: dict[int, list[Any]] = schedule.pipeline_order_with_comms
    # Its simulator knows nothing of what becomes of parameters.
    stays = (*COMPUTE, "SEND_F", "RECV_F", "SEND_B", "RECV_B")
    return {
        rank: [action for action in row if word(action) in stays] for rank, row in actions.items()
    }


def word(action: Any) -> str:
    """Return what an action is called in files; some versions number the kinds."""
    kind = action.computation_type
    return kind.value if isinstance(kind.value, str) else str(kind)


def simulated(instance: PipelineSchedule, actions: dict[int, list[Any]]) -> dict[int, list[str]]:
    """Return the work of each rank in torch's simulation, which refuses what never ends."""
    done = schedules._simulate_comms_compute(
        actions, lambda stage: int(instance.devices[stage]), instance.p
    )
    return {
        rank: [str(each) for each in row if each and word(each) in COMPUTE]
        for rank, row in done.items()
    }


def chain(seed: int) -> PipelineSchedule:
    """Return a random chain in training, with as many microbatches of each stage."""
    drawn = random_schedule(seed, limit=None)
    columns = (drawn.forward, drawn.backward if drawn.training else drawn.forward, drawn.weight)
    return PipelineSchedule.from_arrays(
        *columns, microbatches=int(drawn.microbatches[0]), devices=drawn.devices
    )


def require_the_same(instance: PipelineSchedule, solution: ScheduleSolution, path: Path) -> None:
    """Write an order in all forms, and find the work of each rank in torch's simulation."""
    plain = torch_schedule.dump(solution, instance)
    expected = dict(enumerate(line.split(",") for line in plain.decode().splitlines()))
    for form in FORMS:
        lowered = form == "compute_comms"
        whole = torch_schedule.dump(solution, instance, communication=lowered, waits=WAITS)
        assert simulated(instance, loaded(instance, whole, form, path)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_torch_lowers_and_simulates_what_is_written(seed: int, tmp_path: Path) -> None:
    instance = chain(seed)
    require_the_same(instance, by_list(instance), tmp_path / "order.csv")


@pytest.mark.parametrize("shape", ["uniform", "interleaved", "v-shaped"])
def test_torch_simulates_orders_that_were_solved(shape: str, tmp_path: Path) -> None:
    instance = sp.load(f"schedule/{shape}", devices=3, microbatches=6, whole_first=True)
    solution = sp.solve(instance, "zb-h1" if shape == "uniform" else "auto", time_limit=1).solution
    assert solution is not None
    require_the_same(instance, solution, tmp_path / "order.csv")


@pytest.mark.parametrize("devices", [[0, 1, 2], [0, 1, 0, 1], [0, 1, 1, 0]])
def test_torch_takes_inference_with_backward_passes_that_it_asks_for(
    devices: list[int], tmp_path: Path
) -> None:
    p, path = len(devices), tmp_path / "order.csv"
    instance = PipelineSchedule.from_arrays([2] * p, devices=devices, microbatches=3)
    solution = by_list(instance)
    plain, whole = (
        torch_schedule.dump(solution, instance, backward=backward).decode().splitlines()
        for backward in (False, True)
    )
    assert all(line.startswith(f"{order},") for line, order in zip(whole, plain, strict=True))
    text = "\n".join(whole).encode()
    done = simulated(instance, loaded(instance, text, "compute_only", path))
    assert done == dict(enumerate(line.split(",") for line in whole))


def test_torch_refuses_in_lowering_what_we_refuse_in_reading(tmp_path: Path) -> None:
    """Both ranks wait: torch reads such a file, and only its lowering finds out."""
    instance = PipelineSchedule.from_arrays([1, 1], [1, 1], microbatches=2)
    text = b"0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n"
    with pytest.raises(AssertionError, match="can't schedule sends/recvs"):
        loaded(instance, text, "compute_only", tmp_path / "order.csv")
    with pytest.raises(sp.InputError, match="it is the turn of microbatch 0"):
        torch_schedule.solution(text, instance)
