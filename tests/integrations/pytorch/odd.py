"""Modules that do something unusual; each function returns one, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

X = torch.linspace(-1, 1, 16).reshape(2, 8)


class Of(nn.Module):
    """Two layers, and what is done with them."""

    def __init__(self, run: Callable[..., Any], **held: Any) -> None:
        super().__init__()
        self.first, self.second = layer(), layer()
        self.run, self.turns = run, 0
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("places", torch.arange(8), persistent=False)
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def layer() -> nn.Module:
    return nn.Linear(8, 8)


def drops_out() -> Any:
    return nn.Sequential(layer(), nn.Dropout(0.5), layer(), nn.BatchNorm1d(8)), (X,)


def layer_of_two_names() -> Any:
    inner = layer()
    return Of(lambda m, x: m.second(m.again(m.first(x))), first=inner, again=inner), (X,)


def forward_hooks() -> Any:
    module = nn.Sequential(layer(), layer())
    module[0].register_forward_hook(lambda _, __, result: result * 2)
    module[1].register_forward_pre_hook(lambda _, given: (given[0] + 1,))
    return module, (X,)


def buffer_assigned() -> Any:
    def run(m: Any, x: Any) -> Any:
        y = m.first(x)
        m.mean = m.mean * 0.9 + y.detach().mean(0)
        return m.second(y + m.mean + m.places)

    return Of(run), (X,)


def in_place() -> Any:
    module = nn.Sequential(layer(), nn.ReLU(inplace=True), layer(), nn.Hardtanh(inplace=True))
    return module, (X,)


def casts() -> Any:
    def run(m: Any, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = m.first(x)
        return m.second(y.float())

    return Of(run), (X,)


def without_slopes() -> Any:
    def run(m: Any, x: Any) -> Any:
        with torch.no_grad():
            y = m.first(x)
        return m.second(y)

    return Of(run), (X,)


def branches() -> Any:
    def run(m: Any, x: Any) -> Any:
        return m.second(torch.cond(x.sum() > 1, m.first, lambda y: y * 2, (x,)))

    return Of(run), (X,)


def scans() -> Any:
    from torch._higher_order_ops.scan import scan

    def run(m: Any, x: Any) -> Any:
        y = m.first(x)
        _, along = scan(lambda c, row: (c + row, (c * row) @ y.new_ones(8, 8)), x[0] * 0, y)
        return m.second(along)

    return Of(run), (X,)


def compiled() -> Any:
    return torch.compile(nn.Sequential(layer(), layer()), backend="eager"), (X,)


def numbers_and_words() -> Any:
    def run(m: Any, x: Any, times: Any, word: Any, none: Any) -> Any:
        assert none is None
        y = m.second(m.first(x) * times)
        return {"y": y, "empty": y[:0], "n": 3, "word": word}

    return Of(run), (X, 2, "word", None)


def no_rows() -> Any:
    return nn.Sequential(layer(), layer()), (X[:0],)


def frozen_integers() -> Any:
    weight = nn.Parameter(torch.ones(8, 8, dtype=torch.int8), requires_grad=False)
    return Of(lambda m, x: m.second(m.first(x) @ m.whole.float()), whole=weight), (X,)


def sparse() -> Any:
    return nn.Sequential(nn.Embedding(9, 8, sparse=True), layer()), (torch.arange(4).reshape(2, 2),)


RIGHT = (
    drops_out, layer_of_two_names, forward_hooks, buffer_assigned, in_place, casts, without_slopes,
    branches, scans, compiled, numbers_and_words, frozen_integers, sparse,
)  # fmt: skip
"""Their stages do what they do."""

SINCE = {branches: (2, 9), scans: (2, 9), compiled: (2, 13)}
"""Versions of torch that are known to run these; 2.6 and 2.9 refuse those that are younger."""


def backward_hook() -> Any:
    module = nn.Sequential(layer(), layer())
    module[1].register_full_backward_hook(lambda _, slopes, __: (slopes[0] * 3,))
    return module, (X,)


class Own(torch.autograd.Function):
    """Has slopes of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        return slope * 7


def own_slopes() -> Any:
    return Of(lambda m, x: m.second(Own.apply(m.first(x)))), (X,)


def checkpoints_by_a_function() -> Any:
    run = partial(checkpoint, use_reentrant=True)
    return Of(lambda m, x: m.second(run(m.first, x))), (X,)


def counts_turns() -> Any:
    def run(m: Any, x: Any) -> Any:
        m.turns += 1
        return m.second(m.first(x) * m.turns)

    return Of(run), (X,)


def buffer_of_two_stages() -> Any:
    def run(m: Any, x: Any) -> Any:
        y = m.first(x)
        m.mean += y.detach().mean(0)
        y = m.second(y)
        m.mean *= 0.5
        return y + m.mean

    return Of(run), (X,)


NO_STAGES = {
    backward_hook: "module: has backward passes of its own, .*: 1: a backward hook; register",
    own_slopes: r"module: has backward passes of its own, .*: Own: backward\(\); register",
    checkpoints_by_a_function: r"passes of its own, .*: CheckpointFunction: backward\(\); register",
    counts_turns: "module: counts in numbers of its own, .*: turns; register them as buffers",
    buffer_of_two_stages: "'mean' is used by 'first' of stage 0 and by 'second' of stage 1; keep",
}
"""They have a profile, but no stages that do the same."""


def shape_by_values() -> Any:
    return Of(lambda m, x: m.second(m.first(x)[x[:, 0] > 0])), (X,)


def without_shape() -> Any:
    return nn.Sequential(nn.LazyLinear(8), layer()), (X,)


def quantised() -> Any:
    module = nn.Sequential(layer(), layer()).eval()
    return torch.ao.quantization.quantize_dynamic(module, {nn.Linear}), (X,)


def scripted() -> Any:
    return nn.Sequential(layer(), torch.jit.script(layer())), (X,)


def on_two_devices() -> Any:
    return nn.Sequential(layer(), layer().to("meta")), (X,)


def no_module() -> Any:
    return torch.relu, (X,)


REFUSED = {
    shape_by_values: r"module: makes a tensor '\w+' whose shape depends on values; keep the shape",
    without_shape: "module 0: has no shape yet of its 'weight'; run the module once",
    quantised: r"module 0\._packed_params: holds packed weights of a quantised layer, .*; give",
    scripted: "module 1: is scripted, so that it cannot be traced; give",
    on_two_devices: "module 1: cannot be traced: .*; put the module and its inputs on one device",
    no_rows: r"sample_inputs: hold no values: \(0, 8\); give a microbatch of one sample",
    no_module: r"module: is a builtin\w*; give a torch.nn.Module",
}
"""They cannot be traced."""
