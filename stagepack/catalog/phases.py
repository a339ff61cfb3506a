"""Phase schedules: networks on a chip like the GC200, the examples of the literature, generators.

Networks are the chains of :mod:`.networks`, with the cycles of the presets in :mod:`.clusters`
(equal tiles; the chip is that of :mod:`.chips`), their parameters as variables and their optimiser
state.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from stagepack.catalog import networks
from stagepack.catalog.generator import Generator
from stagepack.contracts import JsonObject
from stagepack.instances import clusters
from stagepack.instances.network import cycles
from stagepack.instances.phases import PhaseSchedule, PhaseSolution, liveness
from stagepack.instances.phases.chips import GC200

PRESET = "ipu-pod4"  # its devices have the arithmetic of the GC200's tiles
TRAINED = {"training": True, "policies": "stash,keep,recompute"}
JOB = {
    "accumulation": 16,
    "free_batch": False,
    "data_parallel": 1,
    "modes": "compute,io,io_overlapped",
    "prefetch": False,
    "capacity": None,
    "utilisation": None,
    "state_bytes": 4,
    **TRAINED,
}


def _network(name: str, *, batch: int, training: bool, **given: Any) -> PhaseSchedule:
    """Return a network of the catalog on the chip ``gc200``.

    Figures are for a microbatch of `batch` samples; with a free microbatch they are per sample,
    and the global batch is as large.
    """
    free = given["free_batch"]
    recipe = networks.NETWORKS[name]
    shape = {key: given[key] for key in recipe.shape if key != "batch"}
    made = networks.network(name, training=training, batch=1 if free else batch, **shape)
    profile = made.profile(
        clusters.preset(PRESET),
        bytes_per_value=given["bytes_per_value"],
        training=training,
        state_bytes=given["state_bytes"],
        utilisation=given["utilisation"],
    )
    replicas = given["data_parallel"]
    whole = batch * given["accumulation"] * replicas
    size = {"global_batch": whole, "microbatch": None if free else batch}
    return PhaseSchedule.from_profile(
        profile,
        GC200,
        sharding=np.full(len(profile.layers), replicas),
        data_parallel=replicas,
        training=training,
        modes=_words(given["modes"]),
        policies=_words(given["policies"]) if training else ("stash",),
        prefetch=given["prefetch"],
        memory=given["capacity"],
        **size,
    )


def _mnist(training: bool, capacity: int | None) -> PhaseSchedule:
    """Return the network of the tutorial: 784 - 512 - 512 - 512 - 10, a layer a group.

    Single precision, microbatch 8, 4 steps, 2 replicas, Adam, 32 I/O tiles, loops of mode ``io``
    (Graphcore, *Phased execution in popxl.addons*, file ``mnist.py``).  Training takes 7 phases;
    the two inner layers share their graphs.
    """
    widths, batch, width, replicas = (784, 512, 512, 512, 10), 8, 4, 2
    preset = clusters.preset(PRESET)
    pairs = list(pairwise(widths))
    # Single precision has a quarter of the arithmetic of half precision (same datasheet).
    peak = preset.flops_per_cycle * preset.utilisation / 4
    forward = [cycles(2 * batch * rows * columns, peak) for rows, columns in pairs]
    weights = [(rows + 1) * columns * width for rows, columns in pairs]
    return PhaseSchedule.from_arrays(
        weights,
        forward,
        [batch * size * width for size in widths],
        backward=[2 * c for c in forward],
        state=[2 * w for w in weights],
        sharding=[replicas] * len(pairs),
        layer_class=[0, 1, 1, 2],
        chip=GC200,
        memory=capacity,
        microbatch=batch,
        steps=4,
        data_parallel=replicas,
        modes=["io"],
        io_tiles=(32, 32),
        training=training,
        fixed_boundaries=(0, 1, 2, 3, 4),
        layer_names=["fc1", "fc2", "fc3", "fc4"],
        name="mnist",
    )


def _six_layers(capacity: int) -> PhaseSchedule:
    """Return six layers for which packing phases from the head is not best (404 against 356)."""
    return PhaseSchedule.from_arrays(
        [4] * 6,
        [6] * 6,
        [8, 8, 2, 8, 2, 8, 2],
        memory=capacity,
        remote_bandwidth=2,
        host_bandwidth=2,
        steps=8,
        modes=["compute"],
        name="six-layers",
    )


def _random_phases(
    layers: int, seed: int, slack: float, training: bool, policies: str, modes: str, **job: Any
) -> PhaseSchedule:
    """Draw every layer anew, with up to a tenth as many skips as layers.

    The memory is what the neediest layer needs alone, times 1 + `slack`.
    """
    rng = np.random.default_rng(seed)
    n = layers
    forward = rng.integers(1_000, 50_000, n)
    skips = set()
    for _ in range(int(rng.integers(0, n // 10 + 1))):
        u = int(rng.integers(-1, max(0, n - 2)))
        if u + 2 < n:
            skips.add((u, min(n - 1, u + 2 + int(rng.integers(0, 4)))))
    drawn = PhaseSchedule.from_arrays(
        rng.integers(10_000, 400_000, n),
        forward,
        rng.integers(5_000, 100_000, n + 1),
        backward=2 * forward,
        state=rng.integers(0, 400_000, n),
        temporary=rng.integers(0, 30_000, n),
        tape=rng.integers(0, 2, n) * rng.integers(1, 60_000, n),
        update=rng.integers(0, 2_000, n),
        sharding=np.full(n, job["data_parallel"]),
        layer_class=rng.integers(0, max(1, n // 2), n),
        skips=sorted(skips),
        tiles=16,
        io_tiles=(0, 4),
        remote_bandwidth=12,
        host_bandwidth=6,
        tile_bandwidth=5,
        gather_bandwidth=24,
        startup=500,
        microbatch=1,
        steps=job["accumulation"],
        data_parallel=job["data_parallel"],
        modes=_words(modes),
        training=training,
        policies=_words(policies) if training else ("stash",),
        prefetch=job["prefetch"],
        name=f"random-{n}",
    )
    alone = PhaseSolution(
        tuple(range(n + 1)),
        ("compute",) * (2 * n - 1 if training else n),
        policy=("stash",) * n if training else (),
    )
    return drawn.replace(memory=int((1 + slack) * _peak(drawn, alone)))


def _chain_remat(layers: int, seed: int, budget: float, recomputations: int) -> PhaseSchedule:
    """Draw a chain that runs as one phase, one step: what to keep, what to compute again.

    A third of the layers have a tape; cycles differ by up to a factor of ten, bytes of four.
    """
    return _remat("chain-remat", layers, seed, budget, recomputations, ())


def _skip_remat(layers: int, seed: int, budget: float, recomputations: int) -> PhaseSchedule:
    """Draw the same with skips: residual ones over two or three layers, a few long ones."""
    rng = np.random.default_rng([seed, 1])
    skips = []
    at = 0
    while at + 3 < layers:
        reach = int(rng.integers(2, 4))
        skips.append((at, at + reach))
        at += reach + int(rng.integers(0, 3))
    half = layers // 2
    # A few that reach across, as in a U-net.
    skips += [(u, layers - 1 - u) for u in range(0, half - 1, max(2, layers // 8))]
    chosen = [(u, v) for u, v in skips if u + 1 < v < layers]
    return _remat("skip-remat", layers, seed, budget, recomputations, chosen)


def _remat(
    name: str, n: int, seed: int, budget: float, recomputations: int, skips: Any
) -> PhaseSchedule:
    rng = np.random.default_rng(seed)
    forward = rng.integers(10, 101, n)
    drawn = PhaseSchedule.from_arrays(
        rng.integers(0, 20, n),
        forward,
        rng.integers(25, 101, n + 1),
        backward=2 * forward,
        temporary=rng.integers(0, 20, n),
        tape=(rng.integers(0, 3, n) == 0) * rng.integers(10, 101, n),
        skips=skips,
        modes=["compute"],
        training=True,
        policies=("keep", "recompute"),
        recomputations=recomputations,
        fixed_boundaries=(0, n),
        name=f"{name}-{n}",
    )
    least = most = _peak(drawn, PhaseSolution((0, n), ("compute",), policy=("keep",) * n))
    for period in range(2, 2 * math.isqrt(n) + 3) if recomputations else ():
        policy = tuple("keep" if at % period == period - 1 else "recompute" for at in range(n))
        plan = PhaseSolution((0, n), ("compute",), policy=policy)
        if not any(violation.rule == "recompute" for violation in drawn.check(plan)):
            least = min(least, _peak(drawn, plan))
    return drawn.replace(memory=least + int(budget * (most - least)))


def _peak(instance: PhaseSchedule, plan: PhaseSolution) -> int:
    """Return the most bytes that a plan ever needs on chip."""
    figures, phases = instance.at(plan.microbatch), plan.phases(instance)
    bases = liveness.base_bytes(instance, figures, phases)
    return max(
        need
        for phase, base in zip(phases, bases, strict=True)
        for _, need in liveness.profile(instance, figures, phase, base)
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


# Long enough texts that a GC200 cannot keep everything.
SHAPES: dict[str, JsonObject] = {
    "bert-base": {"sequence": 384, "batch": 16},
    "bert-large": {"sequence": 384},
}
REMAT = {"layers": 40, "seed": 0, "budget": 0.3, "recomputations": 1}
NETWORKS = tuple(name for name in networks.NETWORKS if name.startswith(("bert", "gpt2")))

GENERATORS: dict[str, Generator] = {
    **{
        name: Generator(
            partial(_network, name),
            {**networks.NETWORKS[name].shape, **SHAPES.get(name, {}), **JOB},
            networks.NETWORKS[name].description + ", on a chip like the GC200",
        )
        for name in NETWORKS
    },
    "mnist": Generator(
        _mnist,
        {"training": True, "capacity": None},
        "The phased-execution tutorial's four linear layers: 7 phases of training",
    ),
    "six-layers": Generator(
        _six_layers, {"capacity": 30}, "Six layers: 356 cycles at best, 404 packed from the head"
    ),
    "random/heterogeneous": Generator(
        _random_phases,
        {
            "layers": 20,
            "seed": 0,
            "slack": 1.0,
            "accumulation": 8,
            "data_parallel": 1,
            "modes": "compute,io,io_overlapped",
            "prefetch": False,
            **TRAINED,
        },
        "Unlike layers with a few skips, memory for some of them at a time",
    ),
    "random/chain-remat": Generator(
        _chain_remat, REMAT, "A chain in one phase: what to keep, what to compute again"
    ),
    "random/skip-remat": Generator(
        _skip_remat, REMAT, "Layers with skips in one phase: what to keep, what to compute again"
    ),
}

SUITE: tuple[tuple[str, JsonObject], ...] = (
    ("mnist", {}),
    ("six-layers", {}),
    ("bert-large", {}),
    ("random/heterogeneous", {}),
    ("random/chain-remat", {}),
    ("random/skip-remat", {"layers": 20}),
)

TOUR: tuple[str, JsonObject, tuple[str, ...]] = (
    "six-layers",
    {},
    ("greedy-head", "enumerate", "milp"),
)
"""What a first comparison shows: an instance, and methods from a rule to a proof."""
