"""Baselines of graph partitioning: PipeDream's figures, METIS made into stages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.graph.peers import metis, pipedream
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact
from tests.random_graphs import random_instance


def profile(data_dir: Path, name: str, devices: int, **given: Any) -> Any:
    return sp.read(
        data_dir / "pipedream" / f"{name}_graph.txt",
        kind="graph-partition",
        devices=devices,
        bandwidth=1e9 / 2**30,
        training=True,
        **{"objective": "overlap", "empty_devices": False, **given},
    )


@pytest.mark.parametrize(
    ("name", "devices", "objective", "microseconds"),
    [
        # What PipeDream's optimizer prints on its own profiles.
        ("resnet50", 4, "overlap", 258_149),
        ("gnmt", 16, "overlap", 24_641.536),
        ("vgg16", 4, "overlap", 411_041.792),
        ("vgg16", 4, "replicated", 205_520.896),
        ("vgg16", 8, "replicated", 103_833.170286),
    ],
)
def test_pipedream_finds_what_its_authors_found(
    data_dir: Path, name: str, devices: int, objective: str, microseconds: float
) -> None:
    instance = profile(data_dir, name, devices, objective=objective)
    result = sp.solve(instance, method="pipedream")
    assert result.objective == pytest.approx(microseconds, rel=1e-9)
    best = sp.solve(instance).objective
    assert best is not None
    assert best <= microseconds * (1 + 1e-9)


def test_pipedream_is_never_better_than_the_optimum() -> None:
    ran = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        objective = str(rng.choice(["overlap", "replicated", "sum"]))
        instance = random_instance(rng, 7, objective=objective, contiguous=True, cpus=0)
        if next(m for m in sp.methods(instance) if m.name == "pipedream").reason:
            continue
        result, optimum = sp.solve(instance, method="pipedream"), sp.solve(instance, method="dp")
        if result.objective is not None:
            ran += 1
            assert optimum.objective is not None
            assert result.objective >= optimum.objective * (1 - 1e-9)
    assert ran > 10


def test_too_many_states_are_a_reason() -> None:
    wide = sp.GraphPartition.from_edges(40, [], time=[1] * 40, accelerators=2)
    result = sp.solve(wide, method="pipedream")
    assert result.objective is None or result.objective >= 20
    edges = [(0, v) for v in range(1, 40)]
    star = Compact.of(sp.GraphPartition.from_edges(40, edges, time=[1] * 40, accelerators=2))
    with pytest.raises(pipedream.TooManyStatesError):
        pipedream.Recurrence(star)


def test_metis_parts_become_stages(data_dir: Path) -> None:
    pytest.importorskip("pymetis")
    instance = profile(data_dir, "resnet50", 4)
    result = sp.solve(instance, method="metis")
    assert result.solution is not None
    assert instance.check(result.solution) == ()
    compact = Compact.of(instance)
    part = metis.parts(compact, 4, 0, lambda: None)
    assert len(set(part.tolist())) == 4
    assert np.array_equal(part, metis.parts(compact, 4, 0, lambda: None))


def test_metis_takes_what_is_strange_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pymetis")
    for seed in range(40):
        rng = np.random.default_rng(seed)
        instance = random_instance(rng, 6, accelerators=1 + seed % 8)
        result = sp.solve(instance, method="metis", time_limit=5)
        if result.solution is not None:
            assert instance.check(result.solution) == ()
        # A few heavy blocks: METIS' own recursion would have halves without any.
        times = (10 ** rng.uniform(0, 7, 30)).astype(int)
        heavy = sp.GraphPartition.from_edges(30, [(0, 1)], time=times, accelerators=11)
        part = metis.parts(Compact.of(heavy), 11, seed, lambda: None)
        assert 0 <= part.min() <= part.max() < 11
    assert capfd.readouterr().out == ""


def test_metis_is_asked_for_halves_and_stops_between_them() -> None:
    pytest.importorskip("pymetis")
    n = 4000
    edges = [(v, v + 1) for v in range(n - 1)]
    chain = sp.GraphPartition.from_edges(n, edges, time=[1] * n, accelerators=5)
    compact, asked = Compact.of(chain), list[int]()
    share = np.bincount(metis.parts(compact, 5, 0, lambda: asked.append(1))) * 5 / n
    assert len(asked) == 4
    assert share.max() < 1.2
    tuning = TUNING.peers.changed({"metis_blocks": 1000})
    together = metis.parts(compact, 5, 0, lambda: None, tuning).reshape(-1, 4)
    assert (together == together[:, :1]).all()
    assert len(np.unique(together)) == 5


def test_metis_without_pymetis_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "stagepack[metis]" in metis.unavailable()
