"""Measures the costs of layers: each is run separately, forward and backward, several times.

Layers that run the same code on the same shapes are measured once.  Floating-point inputs are drawn
from a normal distribution, integers are 0.  Times are the minimum, in nanoseconds of wall time,
because other load only increases them.  The stash consists of the bytes that autograd keeps,
without parameters.  A further round measures memory: the peak bytes of new tensors in a forward
pass that keeps nothing, and in a backward pass, in which gradients are added to existing ones.
Memory that kernels use internally is visible on GPUs only.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import fx

from stagepack import files
from stagepack.errors import InputError
from stagepack.instances.profile import LayerProfile, ModelProfile
from stagepack.integrations.pytorch.counting import signature
from stagepack.integrations.pytorch.exporting import FAILURES
from stagepack.integrations.pytorch.inside import is_fake
from stagepack.integrations.pytorch.memory import Alive
from stagepack.integrations.pytorch.tracing import Layer, Traced, extracted, written_into


class Figures(msgspec.Struct, frozen=True):
    """What was measured of a layer: nanoseconds and bytes."""

    forward: int
    backward: int
    stash: int
    temporary: int
    backward_temporary: int


@dataclass(frozen=True)
class Bench:
    """How layers are measured: how often, where figures are kept, whether a bar is shown."""

    repeats: int = 5
    cache: Path | None = None
    progress: bool = False


def measured(traced: Traced, profile: ModelProfile, bench: Bench) -> ModelProfile:
    """Return a profile, counted of the same layers, with the times and bytes of layers that ran."""
    if bench.repeats < 1:
        raise InputError(f"{bench.repeats} repeats", field="repeats", remedy="give at least 1")
    if any(_device(layer).type == "meta" for layer in traced.layers):
        raise InputError(
            "is on the device `meta`", field="module", remedy="count it, or give it weights"
        )
    known: dict[str, Figures] = {}
    layers = []
    last = {name: at for at, layer in enumerate(profile.layers) for name in layer.inputs}
    with _shown(bench, len(traced.layers)) as step:
        for at, (layer, counts) in enumerate(zip(traced.layers, profile.layers, strict=True)):
            key = signature(layer)
            if key not in known:
                known[key] = _kept(traced, layer, key, bench)
            ending = sum(profile.tensors[name] for name in set(counts.inputs) if last[name] == at)
            layers.append(_with(counts, known[key], ending))
            step(layer.name)
    return msgspec.structs.replace(profile, layers=tuple(layers))


def _with(counts: LayerProfile, found: Figures, ending: int) -> LayerProfile:
    """Return a layer with the figures that were measured; `ending` inputs are its own, too."""
    return msgspec.structs.replace(
        counts,
        forward=found.forward,
        backward=found.backward,
        stash=found.stash,
        temporary=found.temporary + ending,
        backward_temporary=found.backward_temporary,
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
    device = _device(layer)
    setting = [3, torch.__version__, str(device), torch.get_num_threads(), bench.repeats]
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


def _device(layer: Layer) -> torch.device:
    for node in (*layer.inputs, *layer.held, *layer.nodes):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device("cpu")


def _measure(traced: Traced, layer: Layer, repeats: int) -> Figures:
    module = extracted(traced, [layer], layer.inputs, layer.outputs)
    own = [_drawn(node) for node in layer.inputs]
    kept = [buffer for buffer in module.buffers() if not is_fake(buffer)]
    before = [(buffer, buffer.clone()) for buffer in kept]
    into = [node.op == "placeholder" for node in written_into(module.graph)]
    try:
        rounds = [_round(module, own, any(into)) for _ in range(repeats + 1)][1:]  # one warms up
        temporary, backward_temporary = _memory(module, own, any(into))
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
        forward=min(one.forward for one in rounds),
        backward=min(one.backward for one in rounds),
        stash=rounds[-1].stash,
        temporary=temporary,
        backward_temporary=backward_temporary,
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


class _Round(NamedTuple):
    """Nanoseconds, and bytes that autograd keeps."""

    forward: int
    backward: int
    stash: int


def _round(module: fx.GraphModule, own: list[Any], copied: bool) -> _Round:
    """Run a layer forward and backward once, on copies where it writes into what it is given."""
    held: dict[int, int] = {}
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not is_fake(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                held[storage.data_ptr()] = storage.nbytes()
        return tensor

    gpu = _is_on_gpu(own)
    given = _copies(own) if copied else own
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        begin = _now(gpu)
        results = module(*given)
        forward = _now(gpu) - begin
    ends = _ends(results)
    wanted = [v for v in (*own, *module.parameters()) if _has_slope(v)]
    backward = 0
    if ends and wanted:
        slopes = [torch.ones_like(end) for end in ends]
        begin = _now(gpu)
        torch.autograd.grad(ends, wanted, slopes, allow_unused=True)
        backward = _now(gpu) - begin
    return _Round(forward, backward, sum(held.values()))


def _memory(module: fx.GraphModule, own: list[Any], copied: bool) -> tuple[int, int]:
    """Return the most bytes that a forward and a backward pass of a layer make, alive at a time."""
    gpu = _is_on_gpu(own)
    given = _copies(own) if copied else own
    weights = list(module.parameters())
    there = [*given, *weights, *module.buffers()]
    with torch.no_grad(), _Most(gpu, there) as forward:
        module(*given)
    given = _copies(own) if copied else own

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        there.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        results = module(*given)
    ends = _ends(results)
    wanted = [v for v in (*own, *weights) if _has_slope(v)]
    if not ends or not wanted:
        return forward.most, 0
    slopes = [weight.grad for weight in weights]
    try:
        for weight in weights:
            weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
        there += [*given, *results, *(weight.grad for weight in weights)]
        with _Most(gpu, there) as backward:
            torch.autograd.backward(ends, [torch.ones_like(end) for end in ends], inputs=wanted)
    finally:
        for weight, slope in zip(weights, slopes, strict=True):
            weight.grad = slope
        for value in own:
            if _has_slope(value):
                value.grad = None
    return forward.most, backward.most


class _Most:
    """Within it: the most bytes that are made and alive at a time."""

    def __init__(self, gpu: bool, there: Iterable[Any]) -> None:
        """Look at the tensors that operators make beside those there, or at a GPU's memory."""
        self.most = 0
        known = (v for v in there if isinstance(v, torch.Tensor) and not is_fake(v))
        self._alive = None if gpu else Alive(known)

    def __enter__(self) -> _Most:
        """Begin."""
        if self._alive is None:
            torch.cuda.reset_peak_memory_stats()
            self._before = int(torch.cuda.memory_allocated())
        else:
            self._before = self._alive.now
            self._alive.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        if self._alive is None:
            self.most = int(torch.cuda.max_memory_allocated()) - self._before
        else:
            self._alive.__exit__(*error)
            self.most = self._alive.most - self._before


def _is_on_gpu(values: Iterable[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in values)


def _has_slope(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _ends(results: Iterable[Any]) -> list[torch.Tensor]:
    """Return the results that gradients come back through."""
    return [result for result in results if _has_slope(result)]


def _copies(values: Iterable[Any]) -> list[Any]:
    """Return values that may be written into, from which gradients go back to these."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _now(gpu: bool) -> int:
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter_ns()
