"""Which layouts there are: all factorisations of the devices that divide what they must.

A layout of G devices has tensor t, pipeline p and data d with t p d = G.  Devices are numbered with
tensor groups innermost, then copies, then stages, as Megatron-LM does by default.

- t divides heads and inner widths, divides the heads of keys and values or is a multiple of them,
  and a tensor group stays within a node.
- p is at most the number of layers.
- d copies share the samples of a step, of which each takes m microbatches of b: b is a power of two
  (or the one that is given), and m b d is the number of samples.
- e divides d and the number of experts.
- In training, all layers are recomputed, or none.

What is given is not chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stagepack.errors import InputError
from stagepack.formats.hugging_face.config import Named, misfit, shares_of, work_of
from stagepack.formats.hugging_face.costs import Shares
from stagepack.formats.hugging_face.layout import Layout
from stagepack.instances.words import Words

DEGREES = ("tensor", "pipeline", "data", "expert")
LARGEST_SAMPLES = 4096
"""Samples of a microbatch at most, where nobody says."""


def layouts(named: Named, given: Words, samples: int) -> Iterator[Layout]:
    """Yield all layouts of a model for so many `samples` of a step, but those that are excluded.

    `named` is the model, and `given` the words that exclude some.
    """
    alone = {name: word for name, word in given.items() if name != "pipeline"}
    whole = shares_of(named, {**alone, "tensor": 1, "data": 1, "expert": 1})
    devices = sum(node.devices for node in whole.nodes)
    room = math.gcd(*(node.devices for node in whole.nodes)) if len(whole.nodes) > 1 else devices
    training, tokens = bool(given.get("training")), work_of(named, given).sequence
    kept = {"all": [False], "inputs": [True]}.get(given.get("keep", ""), [False, True])
    for tensor in _chosen(given, "tensor", divisors(room)):
        for pipeline in _chosen(given, "pipeline", divisors(devices)):
            data, left = divmod(devices, tensor * pipeline)
            if left or pipeline > len(named.model.layers) or samples % data:
                continue
            if given.get("data", data) != data:
                continue
            shares = replace(whole, tensor=tensor, data=data)
            for expert in _chosen(given, "expert", _experts(named, shares)):
                if misfit(named.model, replace(shares, expert=expert)):
                    continue
                for size in _chosen(given, "microbatch", _powers(samples // data)):
                    count, rest = divmod(samples // data, size)
                    for again in kept if training and not rest else [False] * (not rest):
                        degrees = tensor, pipeline, data, expert
                        yield Layout(*degrees, size, count, again, whole.zero, tokens)


def require_layouts(named: Named, given: Words, samples: int) -> list[Layout]:
    """Return all layouts, as :func:`layouts` yields them; refuse where there is none.

    `named`, `given` and `samples` are those of :func:`layouts`.
    """
    found = list(layouts(named, given, samples))
    if not found:
        said = [f"{name}={given[name]}" for name in (*DEGREES, "microbatch") if name in given]
        asked = f" with {', '.join(said)}" if said else ""
        raise InputError(
            f"no degrees divide the devices, the model and {samples:,} samples{asked}",
            field=next((name for name in (*DEGREES, "microbatch") if name in given), "samples"),
            remedy="leave a degree out, or give more samples a step",
        )
    return found


def divisors(count: int) -> list[int]:
    """Return the divisors of a number, rising; O(sqrt(count))."""
    low = [one for one in range(1, math.isqrt(count) + 1) if count % one == 0]
    return sorted({*low, *(count // one for one in low)})


def _experts(named: Named, shares: Shares) -> list[int]:
    """Return among how many copies experts may be divided."""
    counts = {layer.part.experts for layer in named.model.layers} - {0}
    return divisors(math.gcd(shares.data, *counts)) if counts else [1]


def _powers(most: int) -> list[int]:
    """Return the powers of two that divide a number."""
    least = most & -most
    return [1 << at for at in range(min(least, LARGEST_SAMPLES).bit_length())]


def _chosen(given: Mapping[str, Any], name: str, usual: list[int]) -> list[int]:
    return [given[name]] if name in given else usual
