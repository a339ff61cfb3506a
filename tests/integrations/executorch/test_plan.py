"""Tensors of ExecuTorch's programs: planned, and run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.integrations.executorch import plan
from stagepack.integrations.executorch.placing import placed

DATA = Path(os.environ.get("STAGEPACK_DATA", "../shared/data")) / "executorch"
GREEDY = {"convnext-tiny": 15_458_304, "swin-2222": 16_662_528, "bert-6-layers": 12_992_512}


@dataclass(eq=False)
class Tensor:
    """A `TensorSpec` as far as it is looked at."""

    nbytes: int
    lifetime: list[int | None] = field(default_factory=lambda: [0, 0])
    mem_id: int | None = None
    storage_base: Any = None
    storage_base_offset: int = 0
    alignment: int = 1

    @property
    def allocated_memory(self) -> int:
        return -(-self.nbytes // self.alignment) * self.alignment

    def realign(self, alignment: int) -> int:
        self.alignment = alignment
        return self.allocated_memory


def test_tensors_lie_where_they_must(tmp_path: Path) -> None:
    first, second = Tensor(20, [0, 2]), Tensor(16, [2, 3])
    part = Tensor(4, [3, 5], storage_base=first, storage_base_offset=16)
    pinned, empty = Tensor(8, [0, 9], mem_id=3), Tensor(0, [1, 1])
    found, sizes = placed([first, second, part, pinned, empty], 16, [0, 20], 1)
    places = {at: (found[spec].memory, found[spec].offset)
              for at, spec in enumerate((first, second, part, pinned, empty))}  # fmt: skip
    # The first lives as long as its part: both lie above what is taken, one above the other.
    assert places[3] == (3, 0)
    assert places[4] == (1, 32)
    assert {places[0], places[1]} in ({(1, 32), (1, 64)}, {(1, 48), (1, 32)})
    assert places[2] == (1, places[0][1] + 16)
    assert sizes == [(0, False), (80, True), (0, False), (16, True)]
    record = tmp_path / "net.json"
    assert placed([first, second, part, pinned, empty], 16, [0, 20], 1, record)[1] == sizes
    kept = sp.read(tmp_path / "net.1.json", kind="packing")
    assert (kept.size.tolist(), kept.start.tolist(), kept.end.tolist()) == (
        [32, 16], [0, 2], [6, 4],
    )  # fmt: skip
    assert sp.read(tmp_path / "net.3.json", kind="packing").size.tolist() == [16]
    assert placed([], 16, [], 1) == ({}, [(0, False), (0, False)])


def test_tensors_that_cannot_be_planned_are_named() -> None:
    loop = Tensor(4)
    loop.storage_base = loop
    for spec, words in (
        (Tensor(4, [None, None]), r"lifetime: \[None, None\] is no lifetime"),
        (Tensor(4, storage_base=Tensor(4)), "storage_base: lies in a tensor that is not planned"),
        (loop, "storage_base: lies in itself"),
    ):
        with pytest.raises(InputError, match=words):
            placed([spec], 4, [], 1)
    base = Tensor(4)
    with pytest.raises(InputError, match="8 bytes from 0 on are not in the 4"):
        placed([base, Tensor(8, storage_base=base)], 4, [], 1)


@pytest.mark.parametrize("name", GREEDY)
def test_recorded_programs_meet_their_bound(name: str) -> None:
    if not DATA.exists():
        pytest.skip("the recorded programs are not here: set STAGEPACK_DATA")
    result = sp.solve(sp.read(DATA / f"{name}.json"), time_limit=10)
    assert (result.status, result.objective) == ("OPTIMAL", result.bound)
    assert result.objective is not None
    assert result.objective < GREEDY[name]


def test_a_program_runs_from_our_plan() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    exir = pytest.importorskip("executorch.exir", reason="ExecuTorch is not installed")
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.runtime import Runtime

    torch.manual_seed(0)
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(576, 64), nn.GELU(), nn.Linear(64, 10),
    ).eval()  # fmt: skip
    x = torch.randn(1, 3, 16, 16)
    sizes, answers = [], []
    for algorithms in ([greedy], [plan], [greedy, plan]):
        suite = MemoryPlanningAlgorithmSuite(algo_list=algorithms)
        config = exir.ExecutorchBackendConfig(
            memory_planning_pass=MemoryPlanningPass(memory_planning_algo=suite)
        )
        program = exir.to_edge(torch.export.export(model, (x,))).to_executorch(config)
        buffers = program.executorch_program.execution_plan[0].non_const_buffer_sizes
        sizes.append(list(buffers))
        method = Runtime.get().load_program(program.buffer).load_method("forward")
        answers.append(method.execute([x])[0])
    assert sizes[1][1] <= sizes[0][1]
    assert sizes[2] == min(sizes[:2])
    for answer in answers:
        torch.testing.assert_close(answer, model(x))
