"""Stages of PyTorch modules: the same results, gradients and names; written as Python."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
models = importlib.import_module("tests.integrations.pytorch.models")

NESTED = ({"x": torch.randn(4, 8), "other": torch.ones(3)},)
CASES: dict[str, tuple[Any, Any, dict[str, Any], list[int]]] = {
    "residual": (
        lambda: models.ResNet(blocks=3),
        (torch.randn(2, 3, 8, 8),),
        {},
        [0, 3, 7, 10, 14],
    ),
    "encoder": (lambda: models.encoder(layers=2), (torch.randn(2, 10, 32),), {}, [0, 2, 5, 8, 16]),
    # Its first layer runs twice, and so does not part.
    "nested": (models.Nested, NESTED, {"scale": torch.tensor(2.0)}, [0, 2, 3]),
}


def flat(value: Any) -> list[Any]:
    return list(torch.utils._pytree.tree_leaves(value))


def slopes(module: Any, results: Any) -> dict[str, Any]:
    """Return the gradients of all parameters for the sum of squares of all results."""
    module.zero_grad()
    sum((one**2).sum() for one in flat(results) if one.requires_grad).backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", CASES)
def test_stages_together_are_the_module(name: str) -> None:
    make, inputs, kwargs, cuts = CASES[name]
    torch.manual_seed(0)
    module = make()
    stages = sp.build_stages(module, cuts, inputs, kwargs)
    assert len(stages) == len(cuts) - 1
    state = {key: value.clone() for key, value in module.state_dict().items()}
    expected = module(*inputs, **kwargs)
    gradients = slopes(module, expected)
    moved = {key: value.clone() for key, value in module.state_dict().items()}
    module.load_state_dict(state)
    found = stages(*inputs, **kwargs)
    assert torch.utils._pytree.tree_structure(found) == torch.utils._pytree.tree_structure(expected)
    for ours, theirs in zip(flat(found), flat(expected), strict=True):
        torch.testing.assert_close(ours, theirs)
    again = slopes(module, found)
    assert again.keys() == gradients.keys()
    for key, value in gradients.items():
        torch.testing.assert_close(again[key], value)
    for key, value in module.state_dict().items():  # means of norms move, too
        torch.testing.assert_close(value, moved[key])


def test_a_plan_without_solution_says_why_there_is_none() -> None:
    """It told to solve for longer what is proved to have none."""
    chain = sp.PipelinePartition.from_arrays([1, 2], devices=2, exclusive=[4, 9]).replace(
        cluster=sp.Cluster.uniform(2, memory=8)
    )
    with pytest.raises(InputError, match=r"no solution \(INFEASIBLE: .*; change what makes it"):
        sp.build_stages(torch.nn.Linear(2, 2), sp.solve(chain), (torch.ones(1, 2),))


@pytest.mark.parametrize("make", [models.Tied, lambda: models.ResNet(blocks=2)])
def test_the_state_goes_there_and_back(make: Any) -> None:
    module = make()
    tied = isinstance(module, models.Tied)
    inputs = (torch.zeros(2, 5, dtype=torch.long),) if tied else (torch.randn(2, 3, 8, 8),)
    cuts = [0, 3] if tied else [0, 4, 10]
    stages = sp.build_stages(module, cuts, inputs)
    state = stages.state_dict()
    assert state.keys() == module.state_dict().keys()
    other = make()
    other.load_state_dict(state)
    if not tied:
        assert not set(stages[0].state_dict()) & set(stages[1].state_dict())
    fresh = {key: torch.zeros_like(value) for key, value in module.state_dict().items()}
    stages.load_state_dict(fresh)
    assert all(not value.any() for value in module.state_dict().values())
    theirs = dict(module.named_parameters(remove_duplicate=False))
    assert all(value is theirs[name] for name, value in stages.named_parameters())
    assert len(list(stages.named_parameters())) == len(list(module.parameters()))
    assert set(dict(module.named_buffers())) <= set(dict(stages.named_buffers()))
    name = next(iter(fresh))
    for state, words in (
        ({key: fresh[key] for key in fresh if key != name}, "is not in the state"),
        ({**fresh, "odd": fresh[name]}, "state odd: is no parameter or buffer"),
        ({**fresh, name: fresh[name][:1]}, rf"state {name}: has the shape \(1,"),
    ):
        with pytest.raises(InputError, match=words):
            stages.load_state_dict(state)


def test_stages_that_use_a_parameter_share_it() -> None:
    module, ids = models.Tied(), (torch.arange(10).reshape(2, 5),)
    stages = sp.build_stages(module, [0, 2, 3], ids)
    ((parameter, users),) = stages.tied
    assert (parameter is module.head.weight, users) == (True, (0, 1))
    assert len(list(stages.named_parameters())) == len(list(module.parameters()))
    stages(*ids).sum().backward()
    gradient, module.head.weight.grad = parameter.grad, None
    module(*ids).sum().backward()
    torch.testing.assert_close(gradient, module.head.weight.grad)
    assert {"embed.weight", "head.weight"} <= stages.state_dict().keys()
    scale = {"scale": torch.tensor(2.0)}
    twice = sp.build_stages(models.Nested(), [0, 1, 3], NESTED, scale)
    assert [users for _, users in twice.tied] == [(0, 1), (0, 1)]
    assert not sp.build_stages(module, [0, 3], ids).tied


@pytest.mark.parametrize("cuts", [[], [0], [0, 3], [0, 2, 2, 10], [1, 10], [0, 11]])
def test_what_are_no_stages_is_refused(cuts: list[int]) -> None:
    with pytest.raises(InputError, match="are no stages of 10 layers"):
        sp.build_stages(models.ResNet(blocks=2), cuts, (torch.randn(2, 3, 8, 8),))


def test_inputs_must_be_built_like_the_sample() -> None:
    x = torch.randn(2, 3, 8, 8)
    stages = sp.build_stages(models.ResNet(blocks=2), [0, 10], (x,))
    with pytest.raises(InputError, match="inputs: are not built as those of the sample"):
        stages(x, x)


def test_a_module_is_piped_from_end_to_end(tmp_path: Path) -> None:
    module, inputs = models.ResNet(blocks=3).eval(), (torch.randn(2, 3, 8, 8),)
    path = tmp_path / "staged.py"
    stages, result = sp.pipe_model(module, inputs, 3, output_file=path)
    assert result.status is sp.Status.OPTIMAL
    assert sum(map(len, stages.layers)) == 14
    torch.testing.assert_close(stages(*inputs), module(*inputs))
    spec = importlib.util.spec_from_file_location("staged", path)
    assert spec is not None
    assert spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    plan = written.create_pipeline_configuration(module)
    assert plan["model inputs"] == ["x"]
    row: Any = inputs
    for part in plan["stages"]:
        assert len(row) == len(part["inputs"])
        row = part["model"](*row)
        assert len(row) == len(part["outputs"])
    torch.testing.assert_close(row[0], module(*inputs))
    own = {name for part in plan["stages"] for name in part["model"].state_dict()}
    assert own == set(module.state_dict())
    with pytest.raises(InputError, match="20 devices for 14 layers"):
        sp.pipe_model(module, inputs, 20)


def forked(right: Any, *devices: int) -> tuple[Any, Any, Any]:
    """Return a fork whose stem, left and right branch and end are on these devices, and its input.

    In the order of the chain the left branch is before the right one.
    """
    module, inputs = models.Fork(right), (torch.randn(2, 8),)
    profile = sp.profile_model(module, inputs)
    graph = sp.GraphPartition.from_profile(profile, sp.Cluster.uniform(max(devices) + 1))
    return module, sp.GraphSolution.of(graph, devices), inputs


def test_devices_of_a_graph_are_stages() -> None:
    module, inputs = models.ResNet(blocks=2).eval(), (torch.randn(2, 3, 8, 8),)
    profile = sp.profile_model(module, inputs)
    result = sp.solve(sp.GraphPartition.from_profile(profile, sp.Cluster.uniform(3)))
    stages = sp.build_stages(module, result, inputs)
    assert len(stages) == 3
    torch.testing.assert_close(stages(*inputs), module(*inputs))
    module, mixed, inputs = forked(torch.nn.Linear(8, 8), 2, 1, 2, 1)
    stages = sp.build_stages(module, mixed, inputs)
    assert stages.layers == (("stem", "right"), ("left", "last"))
    expected = slopes(module, module(*inputs))
    for key, value in slopes(module, stages(*inputs)).items():
        torch.testing.assert_close(value, expected[key])


@pytest.mark.parametrize(
    ("right", "devices"),
    [
        (torch.nn.Linear(8, 8), (0, 1, 1, 0)),
        (torch.nn.ReLU(inplace=True), (0, 1, 0, 1)),  # the left branch reads it before
    ],
)
def test_devices_that_wait_for_one_another_are_no_stages(right: Any, devices: Any) -> None:
    module, plan, inputs = forked(right, *devices)
    with pytest.raises(InputError, match="assignment: devices 0 and 1 wait for one another"):
        sp.build_stages(module, plan, inputs)
    twice = sp.profile_model(module, inputs)
    graph = sp.GraphPartition.from_profile(
        twice, sp.Cluster.uniform(2), training=True, objective="forward+backward"
    )
    with pytest.raises(InputError, match="has 8 nodes, not the 4 layers of the module"):
        sp.build_stages(module, sp.GraphSolution.of(graph, [0] * 8), inputs)
