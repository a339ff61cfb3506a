"""The packings of the catalog: what their optima are, and what greedy allocators make of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack import catalog
from stagepack.catalog.networks import NETWORKS
from stagepack.catalog.packing import GENERATORS, evolved
from stagepack.errors import InputError
from stagepack.formats import door, solutions
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.imports import ROOT
from tests.packing_cases import brute_force

RANDOM = [name for name in GENERATORS if name.startswith("random/")]


def load(name: str, **parameters: Any) -> LmemPacking:
    instance = catalog.load(f"packing/{name}", **parameters)
    assert isinstance(instance, LmemPacking)
    return instance


def highest_load(instance: LmemPacking) -> int:
    """Return the largest sum of sizes alive at one moment."""
    return max(
        int(instance.size[(instance.start <= t) & (t < instance.end)].sum())
        for t in np.unique(instance.start)
    )


def first_fit(instance: LmemPacking, order: Iterable[int], *, best: bool = False) -> int:
    """Place the buffers in order, each in the lowest gap (`best`: the tightest); the peak."""
    size, start, end = (c.tolist() for c in (instance.size, instance.start, instance.end))
    place: dict[int, int] = {}
    for i in order:
        busy = [j for j in place if start[j] < end[i] and start[i] < end[j]]
        at, chosen, room = 0, None, float("inf")
        for low, high in sorted((place[j], place[j] + size[j]) for j in busy):
            if size[i] <= low - at < room:
                chosen, room = at, low - at if best else 0
            at = max(at, high)
        place[i] = at if chosen is None else chosen
    solution = PackingSolution.of(instance, [place[i] for i in range(instance.n)])
    assert instance.check(solution) == ()
    return instance.evaluate(solution)


def by(instance: LmemPacking, *keys: np.ndarray) -> list[int]:
    order: list[int] = np.lexsort(keys[::-1]).tolist()
    return order


def by_breadth(instance: LmemPacking) -> list[int]:
    """Return TFLite's order: moments of the highest load first, in each the largest first."""
    loads = []
    for t in np.unique(instance.start):
        alive = np.flatnonzero((instance.start <= t) & (t < instance.end))
        loads.append((-int(instance.size[alive].sum()), alive.tolist()))
    order: dict[int, None] = {}
    for _, buffers in sorted(loads, key=lambda pair: pair[0]):
        order |= dict.fromkeys(sorted(buffers, key=lambda i: -int(instance.size[i])))
    return list(order)


@pytest.mark.parametrize("name", RANDOM)
def test_same_seed_same_instance(name: str) -> None:
    one = load(name, seed=5, buffers=33)
    assert one.digest == load(name, seed=5, buffers=33).digest
    assert one.digest != load(name, seed=6, buffers=33).digest
    assert one.n == 33
    assert one.name == f"{name.partition('/')[2]}-33-seed5"


@pytest.mark.parametrize("name", [name for name in RANDOM if name != "random/evolved"])
@pytest.mark.parametrize("buffers", [1, 2, 3, 4, 5, 17])
def test_smallest_sizes(name: str, buffers: int) -> None:
    for seed in range(5):
        assert load(name, buffers=buffers, seed=seed).n == buffers


def test_capacity_and_objective_may_be_chosen() -> None:
    free = load("random/planted")
    assert free.objective is Objective.PEAK
    fit = load("random/planted", capacity="2000000")
    assert (fit.capacity, fit.objective) == (2_000_000, Objective.FIT)
    assert load("random/planted", capacity=99, objective="peak").ceiling is None
    piped = load("random/pipelined", capacity=2**20)
    assert (piped.capacity, piped.objective) == (2**20, Objective.BANK_CONFLICTS)
    assert load("random/pipelined", objective="fit").objective is Objective.FIT


@pytest.mark.parametrize("name", ["random/planted", "random/pinwheel"])
@pytest.mark.parametrize(("buffers", "peak"), [(9, 12), (40, 2**20), (500, 5 * 2**10)])
def test_dissections_waste_nothing(name: str, buffers: int, peak: int) -> None:
    instance = load(name, buffers=buffers, peak=peak, seed=3)
    assert highest_load(instance) == peak
    area = int((instance.size * (instance.end - instance.start)).sum())
    assert area == peak * (instance.end.max() - instance.start.min())
    if buffers < 10:
        best = brute_force(instance)
        assert best is not None
        assert instance.evaluate(best) == peak


def test_a_constant_load() -> None:
    for seed in range(20):
        instance = load("random/constant-load", seed=seed)
        area = int((instance.size * (instance.end - instance.start)).sum())
        assert area == highest_load(instance) * instance.end.max()


def test_training_meets_thousands() -> None:
    instance = load("random/training")
    blocks = Blocks.of(instance)
    assert blocks.b == 18_692
    begun = np.searchsorted(np.sort(blocks.first), blocks.end, side="left")
    pairs = int((begun - np.searchsorted(np.sort(blocks.end), blocks.first, side="right")).sum())
    assert 20_000_000 < pairs - blocks.b < 28_000_000  # each counted twice
    held = instance.end - instance.start
    assert np.median(held) < 5
    assert (held > 1000).sum() > 1000
    assert (instance.size % 512 == 0).all()


def test_powerlaw_is_as_it_says() -> None:
    instance = load("random/powerlaw", buffers=100_000)
    life = instance.end - instance.start
    assert instance.start.min() >= 0
    assert instance.start.max() < 100_000
    assert life.min() == 1
    assert life.max() == 20_000
    assert np.median(life) == pytest.approx(np.exp(2.5), rel=0.1)
    assert instance.size.min() >= 32
    assert instance.size.max() <= 2**18 + 32 * 300
    assert instance.size.mean() == pytest.approx(
        (2**18 - 2**5) / (13 * np.log(2)) + 32 * 150, rel=0.03
    )


def test_the_loop_is_consistent() -> None:
    for seed in range(20):
        instance = load("random/pipelined", seed=seed, buffers=12)
        assert instance.period == 4
        assert instance.banks is not None
        assert instance.banks.count * instance.banks.nbytes == instance.capacity
        # Only buffers of one moment can be touched at once.
        for i, j in instance.banks.pairs.tolist():
            alive = [
                {t % 4 for t in range(int(instance.start[k]), int(instance.end[k]))} for k in (i, j)
            ]
            assert alive[0] & alive[1]


@pytest.mark.parametrize("core", evolved.CORES, ids=lambda core: f"{len(core.rows)}-{core.load}")
def test_cores_exceed_their_load(core: evolved.Core) -> None:
    start, end, size = np.array(core.rows).T
    instance = LmemPacking.from_arrays(size, start, end)
    assert highest_load(instance) == core.load
    assert exceeds(instance, core.optimum - 1)
    assert not exceeds(instance, core.optimum)


def exceeds(instance: LmemPacking, capacity: int) -> bool:
    """Tell by exhaustion that no packing fits: in order of offsets, each on what lies below it."""
    size, start, end = (c.tolist() for c in (instance.size, instance.start, instance.end))
    n = instance.n
    meets = [
        [j for j in range(n) if j != i and start[j] < end[i] and start[i] < end[j]]
        for i in range(n)
    ]
    together = [[i for i in range(n) if start[i] <= t < end[i]] for t in sorted(set(start))]

    def fits(left: frozenset[int], base: tuple[int, ...], last: int) -> bool:
        if not left:
            return True
        if (left, base) in failed:
            return False
        for alive in together:
            rest = [i for i in alive if i in left]
            if rest:
                floor = min(max(last, base[i]) for i in rest)
                if floor + sum(size[i] for i in rest) > capacity:
                    return False
        for i in left:
            if base[i] >= last:
                top = base[i] + size[i]
                raised = list(base)
                for j in meets[i]:
                    raised[j] = max(raised[j], top)
                if fits(left - {i}, tuple(raised), base[i]):
                    return True
        failed.add((left, base))
        return False

    failed: set[tuple[frozenset[int], tuple[int, ...]]] = set()
    return not fits(frozenset(range(n)), (0,) * n, 0)


def test_evolved_optima() -> None:
    for buffers, seed in ((8, 0), (9, 1), (14, 2), (40, 0), (300, 7)):
        instance = load("random/evolved", buffers=buffers, seed=seed)
        excess = evolved.optimum(buffers, seed) - highest_load(instance)
        assert excess >= evolved.LOAD // 24
    smallest = load("above-load")
    assert highest_load(smallest) == 16
    best = brute_force(smallest)
    assert best is not None
    assert smallest.evaluate(best) == 17


def test_against_size() -> None:
    instance = load("adversarial/size", copies=2)
    least = highest_load(instance)
    order = by(instance, -instance.size)
    for peak in (
        first_fit(instance, order),
        first_fit(instance, order, best=True),
        first_fit(instance, by_breadth(instance), best=True),
    ):
        assert peak >= 1.99999 * least
    # The leaves of w and v, and u and x, hang from the top; the others lie at the bottom.
    above = np.tile([True, False, True, False, False, True, False, True], 2)
    solution = PackingSolution.of(instance, np.where(above, least - instance.size, 0))
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == least


@pytest.mark.parametrize("levels", [1, 2, 4, 6])
def test_against_start_and_lifetime(levels: int) -> None:
    for name in ("start", "lifetime"):
        instance = load(f"adversarial/{name}", levels=levels)
        life = instance.end - instance.start
        least = 2 ** (levels + 2)
        orders = (
            [by(instance, instance.start), by(instance, instance.start, -instance.size)]
            if name == "start"
            else [
                by(instance, -life),
                by(instance, -life, -instance.size),
                by(instance, -life * instance.size),
            ]
        )
        assert highest_load(instance) == least
        for order in orders:
            for best in (False, True):
                assert first_fit(instance, order, best=best) == least * (2 + levels) // 2
        # Backwards in time, the large ones come first and all fall into place.
        assert first_fit(instance, by(instance, -instance.end, -instance.size)) == least


def test_against_all() -> None:
    instance = load("adversarial/all")
    life = instance.end - instance.start
    orders = [
        by(instance, -instance.size),
        by(instance, instance.start),
        by(instance, -life),
        by(instance, -life * instance.size),
        by(instance, -life, -instance.size),
        by_breadth(instance),
    ]
    for best in (False, True):
        peaks = [first_fit(instance, order, best=best) for order in orders]
        assert min(peaks) >= 1.99999 * highest_load(instance)


@pytest.mark.parametrize("network", NETWORKS)
def test_activations(network: str) -> None:
    inference, training = (
        load(f"activations/{network}", batch=2, training=training) for training in (False, True)
    )
    for instance in (inference, training):
        assert (instance.size % 64 == 0).all()
        assert instance.ids is not None
        assert instance.start.min() == 0
    assert training.name == f"activations-{network}-training"
    assert training.end.max() == 2 * inference.end.max()
    assert highest_load(training) > 2 * highest_load(inference)
    larger = load(f"activations/{network}", batch=4)
    assert highest_load(larger) == pytest.approx(2 * highest_load(inference), rel=0.01)


def test_activations_of_vgg() -> None:
    instance = load("activations/vgg-16", batch=1)
    assert instance.ids is not None
    at = {name: i for i, name in enumerate(instance.ids)}
    # The image is read by the first layer; what the second writes is the third's input.
    for name, nbytes, start, end in (
        ("image", 2 * 3 * 224 * 224, 0, 1),
        ("conv 1.1", 2 * 64 * 224 * 224, 0, 2),
        ("conv 1.2", 2 * 64 * 224 * 224, 1, 3),
        ("pool 1", 2 * 64 * 112 * 112, 2, 4),
        ("logits", 2048, 20, 21),
    ):
        i = at[name]
        assert (instance.size[i], instance.start[i], instance.end[i]) == (nbytes, start, end)
    assert highest_load(instance) == 2 * 2 * 64 * 224 * 224
    training = load("activations/vgg-16", batch=1, training=True)
    assert training.ids is not None
    at = {name: i for i, name in enumerate(training.ids)}
    # Kept until the backward pass of its reader, conv 1.2, in step 2 * 21 - 1 - 1.
    for name, start, end in (
        ("conv 1.1", 0, 41),
        ("gradient of conv 1.1", 40, 42),
        ("image", 0, 42),
        ("gradient of pool 5", 23, 25),
    ):
        assert (training.start[at[name]], training.end[at[name]]) == (start, end)


def test_shortcuts_stay_alive() -> None:
    instance = load("activations/resnet-50", batch=1)
    assert instance.ids is not None
    at = instance.ids.index("x1.0")
    # Read by the reduction and, three blocks on, by the expansion.
    assert instance.end[at] - instance.start[at] == 4


def test_best_known_values() -> None:
    expected = {
        "packing/random/planted": 2**20,
        "packing/random/pinwheel": 2**20,
        "packing/random/evolved": evolved.optimum(40, 0),
        "packing/above-load": 17,
        "packing/adversarial/size": 2**21 + 5,
        "packing/adversarial/start": 64,
        "packing/adversarial/lifetime": 64,
        "packing/adversarial/all": 2**5 * (2**21 + 5),
        "packing/activations/bert-base training=True": 312_985_600,
        "packing/activations/resnet-50 training=True": 524_238_848,
    }
    for name, value in expected.items():
        source, *settings = name.split()
        instance = catalog.load(source, **dict(setting.split("=") for setting in settings))
        known = catalog.best_known(instance)
        assert known is not None, name
        assert (known.name, known.objective, known.value) == (name, "peak", value)
        if name not in ("packing/random/evolved", "packing/above-load"):
            assert highest_load(instance) == value
    for instance in catalog.suite("lmem-packing"):
        known = catalog.best_known(instance)
        assert known is not None, instance.name
        assert known.name == instance.source
        assert known.objective == instance.objective
        assert known.proved


@pytest.mark.parametrize(
    ("placement", "settings"),
    [
        ("pinwheel-160-2-3", {"seed": 3}),
        ("planted-200-2-2", {"of": "planted", "buffers": 200, "seed": 2}),
        ("planted-400-2-0", {"of": "planted", "buffers": 400}),
    ],
)
def test_hard_packings_have_the_placements_that_are_kept(placement: str, settings: Any) -> None:
    instance = catalog.load("packing/relative", **settings)
    lowest = instance.replace(objective="peak")
    path = ROOT / "benchmarks" / "hard_packings" / f"{placement}.json"
    known = catalog.best_known(lowest)
    assert known is not None
    placed = solutions.read_solution(path, lowest)
    assert isinstance(placed, PackingSolution)
    assert lowest.check(placed) == ()
    assert known.value == lowest.evaluate(placed)
    assert instance.capacity == highest_load(instance)
    assert known.proved == (known.value == instance.capacity)


@pytest.mark.parametrize(
    ("of", "changes", "seed"), [("C", 2, (1007, 127)), ("I", 4, (905, 88)), ("K", 2, (901, 179))]
)
def test_hard_relatives_of_public_data_have_the_placements_that_are_kept(
    of: str, changes: int, seed: tuple[int, int], data_dir: Any
) -> None:
    path = str(data_dir / "minimalloc" / f"{of}.1048576.csv")
    instance = catalog.load(
        "packing/relative", of=path, changes=changes, seed=seed[0], number=seed[1]
    )
    lowest = instance.replace(objective="peak")
    name = f"minimalloc-{of}{changes}-{seed[1]}-{seed[0]}.json"
    placed = solutions.read_solution(ROOT / "benchmarks" / "hard_packings" / name, lowest)
    known = catalog.best_known(lowest)
    assert known is not None
    assert isinstance(placed, PackingSolution)
    assert lowest.check(placed) == ()
    assert known.value == lowest.evaluate(placed)
    assert known.proved == (known.value == highest_load(instance))


def test_relatives_of_a_file_need_lifetimes(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("id,lower,upper,size\na,0,2,4\nb,1,3,6\nc,2,4,8\n")
    one, other = (
        catalog.load("packing/relative", of=str(path), changes=1, number=number)
        for number in (0, 1)
    )
    assert one.digest != other.digest
    assert one.capacity == highest_load(one)
    (tmp_path / "none.csv").write_text("id,lower,upper,size\n")
    with pytest.raises(InputError):
        catalog.load("packing/relative", of=str(tmp_path / "none.csv"))


def test_best_known_values_of_public_data(data_dir: Any) -> None:
    path = data_dir / "minimalloc" / "C.1048576.csv"
    for objective in ("peak", "fit"):
        known = catalog.best_known(door.read(path, objective=objective))
        assert known is not None
        assert (known.value, known.objective) == (1_039_360, objective)
        assert highest_load(door.read(path)) <= known.value
    path = data_dir / "tpu-mlir" / "blazeface_bm1688.json"
    for instance in door.read_all(path, objective="peak"):
        known = catalog.best_known(instance)
        assert known is not None
        assert known.name == f"{path.name}#{instance.name}"
        least = Blocks.of(instance).load.max()
        assert (known.value > least) == (instance.name in ("blazeface-g3", "blazeface-g8"))
