"""Training steps of large transformers: thousands of nested lifetimes over many short ones.

A step runs all layers forward and then, in the opposite order, backward.  What a layer keeps lives
until its own backward pass, so that lifetimes nest; gradients of weights live from there to the
end; optimiser states and weights all the time; temporaries for a few operations.  The many long
lives meet nearly everything: pairs of buffers alive together grow as buffers times layers.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.profile import Array

ALIGNMENT = 512

STREAM = 2**21
"""Bytes of the hidden state of a microbatch."""

PARTS = (1, 1, 1, 3, 4, 4, 0.5, 0.25)
"""Sizes of what operators write, in hidden states: residuals, heads, feed-forward, scores."""

SHIFT = 2
"""Layers by which an activation may be let go sooner or later than it was written."""


def training(buffers: int, layers: int, kept: int, spread: float, seed: int) -> LmemPacking:
    """Return a training step of a transformer, drawn by `seed`.

    Of the `buffers`, what no layer holds is temporary.  Each of the `layers` has `kept` some:
    activations up to its backward pass, gradients from there on, weights and states of the
    optimiser all the time.  `spread` is the deviation of the logarithm of how long temporaries
    live, in operations; the wider, the harder.
    """
    rng = np.random.default_rng(seed)
    kept = min(kept, buffers // max(1, layers))
    temporaries = buffers - layers * kept
    each = max(4, temporaries // (6 * layers))  # operations of a layer; backward twice as many
    end = 3 * each * layers
    # Activations, gradients, weights and states of the optimiser.
    role = np.tile(rng.choice(3, kept, p=(0.7, 0.2, 0.1)), layers)
    layer, at = np.repeat(np.arange(layers), kept), np.tile(rng.random(kept), layers)
    forward = (layer * each + at * each).astype(np.int64)
    shift = rng.integers(-SHIFT * each, SHIFT * each + 1, len(forward))
    backward = np.clip(end - 1 - 2 * forward + shift, forward + 1, end - 1)
    start = np.where(role == 0, forward, np.where(role == 1, backward, 0))
    stop = np.where(role == 0, backward + 1, end)
    begin = rng.integers(0, end, temporaries)
    lasting = np.ceil(rng.lognormal(0.5, spread, temporaries)).astype(np.int64)
    # Layers are alike: a tensor of one has the size of its fellow in every other.
    size = np.append(np.tile(_sizes(rng, kept), layers), 2 * _sizes(rng, temporaries))
    start, stop = np.append(start, begin), np.append(stop, np.minimum(begin + lasting, end))
    return LmemPacking.from_arrays(size, start, stop, name=f"training-{buffers}")


def _sizes(rng: np.random.Generator, count: int) -> Array:
    """Draw sizes of tensors, multiples of the alignment."""
    usual = np.asarray(STREAM * rng.choice(PARTS, count), dtype=np.int64)
    odd = ALIGNMENT * np.floor(2.0 ** rng.uniform(0, 14, count)).astype(np.int64)
    # Most are of no such size: statistics, masks, shards, workspaces.
    return np.where(rng.random(count) < 0.7, odd, usual)
