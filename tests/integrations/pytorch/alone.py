"""Stages of a module, all on this process, beside the module itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

import stagepack as sp

COUNT = 2
"""Microbatches."""


def group() -> Iterator[None]:
    """Make a group of this process alone; for a fixture."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def require_version(since: tuple[int, int] | None) -> None:
    """Skip a test of what older versions of torch refuse."""
    if since is not None and tuple(map(int, torch.__version__.split(".")[:2])) < since:
        pytest.skip(f"torch {torch.__version__} refuses it")


def tensors(value: Any) -> list[Any]:
    """Return all tensors of a structure."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def loss(result: Any, _: Any = None) -> Any:
    """Return the sum of squares of all that comes out."""
    leaves = [x for x in tensors(result) if x.is_floating_point() or x.is_complex()]
    return sum(leaf.abs().square().sum() for leaf in leaves)


def require_same(
    module: Any, ours: Any, stages: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Compare a step of a pipeline with the module run on one microbatch after the other.

    Results, gradients and buffers; the same numbers are drawn for both.

    Parameters
    ----------
    module : nn.Module
    ours : nn.Module
        A copy of it, of which `stages` were made.
    stages : Stages
    args, kwargs : sequence, mapping
        Of a microbatch.
    """

    def given(times: int) -> Any:
        def copies(x: Any) -> Any:
            many = isinstance(x, torch.Tensor) and x.dim()
            return torch.cat([x.detach()] * times) if many else x

        return pytree.tree_map(copies, (tuple(args), dict(kwargs)))

    schedule = sp.PipelineSchedule.from_arrays(
        [1] * len(stages), [2] * len(stages), devices=[0] * len(stages), microbatches=COUNT
    )
    runs = sp.run_pipeline(stages, schedule, sp.solve(schedule, "gpipe"), 0, loss)
    own, named = given(COUNT)
    torch.manual_seed(1)
    found = runs.step(*own, **named)
    torch.manual_seed(1)
    expected = []
    for _ in range(COUNT):
        own, named = given(1)
        expected.append(module(*own, **named))
        lost = loss(expected[-1])
        if isinstance(lost, torch.Tensor) and lost.requires_grad:
            lost.backward()
    for one, told in zip(tensors(found), zip(*map(tensors, expected), strict=True), strict=True):
        whole = torch.cat(told) if told[0].dim() else torch.stack(told)
        torch.testing.assert_close(one, whole)
    for kind in ("named_parameters", "named_buffers"):
        for (name, theirs), (_, mine) in zip(
            getattr(module, kind)(), getattr(ours, kind)(), strict=True
        ):
            pair = (theirs, mine) if kind == "named_buffers" else (theirs.grad, mine.grad)
            if pair != (None, None):
                torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4, msg=name)
