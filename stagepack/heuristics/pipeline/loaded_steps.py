"""Lower bounds on the time of a pass through stages, if stages that do not fit load variables.

A stage whose bytes fit stays on its device, and its F and B take the time of its work.  Any other
stage runs in phases for a bundle of microbatches (:mod:`stagepack.instances.phases.stage`); in
several phases if its variables alone do not fit.  In inference some variables may stay.  Let s be
the bytes of a stage that are on the chip or loaded, and M the memory of its device.  Some layer is
loaded and run beside everything that stays, so at least

    s - M + least bytes of a layer that is loaded and run

are loaded; in addition to the work, or during it if the chip has tiles for I/O.  In training all
variables are loaded before F, and again before B, which begins with another forward pass; gradients
of the same size are stored to remote memory at its end.  :class:`.StepStages` evaluates all
partitions with these passes instead of work alone.  O(n^2) for each kind of device.
Source: own work.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.pipeline.step_stages import ROUNDING, ranges
from stagepack.instances.phases.stage import STAYS, variables
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array, Chip

NOTHING = 2**62
"""More bytes than any layer has."""

Passes = list[tuple[Array, Array]]
"""By device, least cycles of F and B on the layers [a, b), shapes (n + 1, n + 1)."""


def least_passes(
    model: PipelinePartition, bundle: int, chip: Chip, *, apart: bool = False
) -> Passes:
    """Return the least cycles in which bundles of microbatches pass each range of layers.

    Devices of the `model` are as large as they are; a `bundle` of microbatches goes through at a
    time.  The `chip` is in cycles of the model's cluster.  `apart`: nothing is loaded while a phase
    computes: nearer to what phases take, and no bound on it.
    """
    rate = None if chip.remote_bandwidth is None else float(chip.remote_bandwidth)
    beside = apart or not chip.io_tile_choices.some
    costs = RangeCosts(model.replace(objective="bottleneck"))
    own = variables(model)
    stays = own + sum(model.exclusive[name] for name in STAYS if name in model.exclusive)
    held, loaded = _sums(stays), _sums(own)
    forced = held + _least(np.where(own > 0, own + model.temporary + model.carry, NOTHING))
    flying = np.zeros_like(held)
    if model.training:
        flying = bundle * (_sums(model.stash) + model.kept_bytes[:, None])
    found: Passes = []
    known: dict[int, tuple[Array, Array]] = {}
    for device, which in zip(model.cluster.devices, costs.device_class.tolist(), strict=True):
        if which not in known:
            f = ranges(bundle * model.forward, device.speed)
            b = ranges(bundle * model.backward * int(model.training), device.speed)
            if device.memory is not None:
                phased = costs.memory_matrix(which, 0) + flying > device.memory
                parts = phased * (1 + (held > device.memory))
                if model.training:
                    once = phased * _cycles(loaded, rate)
                    f, b = f + once, b + phased * f + 2 * once
                    b = b + chip.startup * np.maximum(parts, 2 * parts - 1)
                else:
                    forces = phased & (held > device.memory)
                    loads = _cycles(np.where(forces, forced - device.memory, 0), rate)
                    f = f + loads if beside else np.maximum(f, loads)
                f = f + chip.startup * parts
            known[which] = f, b
        found.append(known[which])
    return found


def _sums(column: Array) -> Array:
    """Return the sums over all ranges, shape (n + 1, n + 1); meaningless for b <= a."""
    running = np.concatenate(([0], np.cumsum(column)))
    return np.asarray(running[None, :] - running[:, None])


def _least(column: Array) -> Array:
    """Return the least of all ranges, shape (n + 1, n + 1); meaningless for b <= a."""
    n = len(column)
    table = np.full((n + 1, n + 1), NOTHING, dtype=np.int64)
    table[:n, 1:] = np.where(np.tri(n, k=-1, dtype=bool), NOTHING, column[None, :])
    return np.asarray(np.minimum.accumulate(table, axis=1))


def _cycles(nbytes: Array, rate: float | None) -> Array:
    """Return the cycles in which bytes are loaded, rounded up as those of phases are."""
    if rate is None:
        return np.zeros(nbytes.shape)
    return np.asarray(np.ceil(np.maximum(0, nbytes) / rate * (1 - ROUNDING)))
