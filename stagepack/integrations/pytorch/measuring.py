"""What layers cost when they run: each by itself, forward and backward, several times.

Layers that run the same code on the same shapes are measured once.  Inputs are drawn: figures from
a normal distribution, integers are 0.  Times are medians, in nanoseconds of the clock on the wall;
the stash are the bytes that autograd keeps, parameters apart.  On a GPU `temporary` is the most
memory that a forward pass takes, inputs included; elsewhere it is counted.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from stagepack import files
from stagepack.errors import InputError
from stagepack.instances.profile import LayerProfile, ModelProfile
from stagepack.integrations.pytorch.counting import signature
from stagepack.integrations.pytorch.tracing import FAILURES, Layer, Traced, extracted


class Figures(msgspec.Struct, frozen=True):
    """What was measured of a layer: nanoseconds and bytes; None where it was not."""

    forward: int
    backward: int
    stash: int
    temporary: int | None = None


@dataclass(frozen=True)
class Bench:
    """How layers are measured: how often, where figures are kept, whether a bar is shown."""

    repeats: int = 5
    cache: Path | None = None
    progress: bool = False


def measured(traced: Traced, profile: ModelProfile, bench: Bench) -> ModelProfile:
    """Return a profile with the times and bytes of layers that ran.

    Parameters
    ----------
    traced : Traced
    profile : ModelProfile
        What was counted of the same layers.
    bench : Bench

    Raises
    ------
    InputError
        For less than one repeat; for a module without weights; for a layer that does not run by
        itself, naming it.
    """
    if bench.repeats < 1:
        raise InputError(f"{bench.repeats} repeats", field="repeats", remedy="give at least 1")
    if any(_device(traced, layer).type == "meta" for layer in traced.layers):
        raise InputError(
            "is on the device `meta`", field="module", remedy="count it, or give it weights"
        )
    known: dict[str, Figures] = {}
    layers = []
    with _shown(bench, len(traced.layers)) as step:
        for layer, counts in zip(traced.layers, profile.layers, strict=True):
            key = signature(layer)
            if key not in known:
                known[key] = _kept(traced, layer, key, bench)
            layers.append(_with(counts, known[key]))
            step(layer.name)
    return msgspec.structs.replace(profile, layers=tuple(layers))


def _with(counts: LayerProfile, found: Figures) -> LayerProfile:
    """Return a layer with the figures that were measured."""
    temporary = counts.temporary if found.temporary is None else found.temporary
    return msgspec.structs.replace(
        counts,
        forward=found.forward,
        backward=found.backward,
        stash=found.stash,
        temporary=temporary,
    )


@contextmanager
def _shown(bench: Bench, layers: int) -> Iterator[Any]:
    """Show a bar, if one is wanted; yields what is told of every layer that is done."""
    if not bench.progress:
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("measuring", total=layers)
        yield lambda name: bar.update(task, advance=1, description=f"measured {name}")


def _kept(traced: Traced, layer: Layer, key: str, bench: Bench) -> Figures:
    """Return the figures of a layer, from the cache where they are there."""
    if bench.cache is None:
        return _measure(traced, layer, bench.repeats)
    device = _device(traced, layer)
    setting = [torch.__version__, str(device), torch.get_num_threads(), bench.repeats]
    name = hashlib.sha256(json.dumps([*setting, key]).encode()).hexdigest()
    path = bench.cache / f"{name}.json"
    if path.is_file():
        try:
            return msgspec.json.decode(path.read_bytes(), type=Figures)
        except msgspec.DecodeError:
            path.unlink()  # cut short: measured again
    found = _measure(traced, layer, bench.repeats)
    bench.cache.mkdir(parents=True, exist_ok=True)
    files.write(path, msgspec.json.encode(found))
    return found


def _device(traced: Traced, layer: Layer) -> torch.device:
    for node in (*layer.inputs, *layer.held, *layer.nodes):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device("cpu")


def _measure(traced: Traced, layer: Layer, repeats: int) -> Figures:
    """Return what a layer takes.

    Raises
    ------
    InputError
        Where it does not run by itself.
    """
    module = extracted(traced, [layer], layer.inputs, layer.outputs)
    own = [_drawn(node) for node in layer.inputs]
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        rounds = [_round(module, own) for _ in range(repeats + 1)][1:]  # the first one warms up
    except FAILURES as error:
        raise InputError(
            f"does not run by itself: {error}",
            field=f"module {layer.name}",
            remedy="measure a larger part of the model: depth=, basic_blocks=",
        ) from None
    finally:
        for buffer, value in before:  # such as the means that norms keep
            buffer.copy_(value)
    return Figures(
        forward=round(statistics.median(one.forward for one in rounds)),
        backward=round(statistics.median(one.backward for one in rounds)),
        stash=rounds[-1].stash,
        temporary=rounds[-1].temporary,
    )


def _drawn(node: fx.Node) -> Any:
    """Return a value like the one that a node had when it was traced."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype.is_floating_point or value.dtype.is_complex:
        made = torch.randn(value.shape, dtype=value.dtype, device=value.device)
        return made.requires_grad_(node.op != "placeholder")
    return torch.zeros(value.shape, dtype=value.dtype, device=value.device)


def _round(module: fx.GraphModule, own: list[Any]) -> Figures:
    """Run a layer forward and backward once."""
    held: dict[int, int] = {}
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    gpu = any(isinstance(value, torch.Tensor) and value.is_cuda for value in own)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        begin = _now(gpu)
        results = module(*own)
        forward = _now(gpu) - begin
    peak = int(torch.cuda.max_memory_allocated()) if gpu else None
    ends = [result for result in results if result.requires_grad]
    wanted = [v for v in (*own, *module.parameters()) if getattr(v, "requires_grad", False)]
    backward = 0
    if ends and wanted:
        slopes = [torch.ones_like(end) for end in ends]
        begin = _now(gpu)
        torch.autograd.grad(ends, wanted, slopes, allow_unused=True)
        backward = _now(gpu) - begin
    return Figures(forward, backward, sum(held.values()), peak)


def _now(gpu: bool) -> int:
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter_ns()
