"""What a model serves, beside all that could be: stages, batches, and how many are under way."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.pipeline import Objective
from stagepack.planning.serving import search
from stagepack.planning.serving.paced import Pacing
from tests.cli.shell import run

HOME = Path(__file__).parents[2] / "examples"
TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
    "max_position_embeddings": 64, "torch_dtype": "bfloat16",
}  # fmt: skip
CONTEXT = 24


def nothing() -> None:
    """Go on."""


def times(chain: sp.PipelinePartition, cut: sp.PipelineSolution) -> tuple[float, float]:
    """Return what the largest stage and all take, by the instance's own evaluation."""
    stage = chain.replace(objective=Objective.SUM).evaluate(cut)
    return float(stage), float(chain.replace(objective=Objective.LATENCY).evaluate(cut))


def cuts(chain: sp.PipelinePartition) -> Iterator[sp.PipelineSolution]:
    """Yield all stages that fit, one on each device."""
    for inner in itertools.combinations(range(1, chain.n), chain.k - 1):
        cut = sp.PipelineSolution.in_order((0, *inner, chain.n))
        if not chain.check(cut):
            yield cut


def drawn(seed: int) -> sp.PipelinePartition:
    """Return a small chain: unlike devices and links, little memory, cuts that are not allowed."""
    rng = random.Random(seed)
    n, k = rng.randint(3, 8), rng.randint(1, 3)
    devices = tuple(
        sp.Device(
            memory=rng.choice([30, 45, 80]) if seed % 2 else None,
            speed=rng.choice([1, 1, 2, 0.5]),
            recv=sp.Link(GBps=rng.choice([1, 2]), idle=rng.randint(0, 3)),
            send=sp.Link(GBps=rng.choice([1, 2]), idle=rng.randint(0, 3)),
        )
        for _ in range(k)
    )
    bytes_at = [rng.randint(0, 3) * 2**30 // 10**9 for _ in range(n + 1)]
    return sp.PipelinePartition.from_arrays(
        [rng.randint(0, 12) for _ in range(n)],
        cluster=sp.Cluster(devices=devices),
        exclusive=[rng.randint(1, 15) for _ in range(n)],
        temporary=[rng.randint(0, 5) for _ in range(n)],
        in_bytes=bytes_at,
        out_bytes=bytes_at,
        kv_bytes=[rng.randint(1, 3) for _ in range(n)],
        tokens=rng.randint(0, 4),
        forbidden_cuts=sorted(rng.sample(range(1, n), rng.randint(0, 1))),
        objective=Objective.SUM,
    )


@pytest.mark.parametrize("seed", range(200))
def test_stages_are_the_best_of_all(seed: int) -> None:
    chain = drawn(seed)
    pacing, every = Pacing(chain, nothing), [times(chain, cut) for cut in cuts(chain)]
    for m in (1, 2, 3, 5):
        found = pacing.best(m)
        if not every:
            assert found is None
            continue
        best = min(max(whole, m * stage) for stage, whole in every)
        assert found is not None
        assert math.isclose(found.cycles, best, rel_tol=1e-9, abs_tol=1e-9)
        stage, whole = times(chain, found.solution)
        assert not chain.check(found.solution)
        assert math.isclose(max(whole, m * stage), best, rel_tol=1e-9, abs_tol=1e-9)
        # Of stages that are as good, none has a smaller largest one.
        as_good = [own for own, both in every if max(both, m * own) <= best * (1 + 1e-9)]
        assert math.isclose(stage, min(as_good), rel_tol=1e-9, abs_tol=1e-9)
        if found.busy:
            assert math.isclose(best, m * min(own for own, _ in every), abs_tol=1e-9)


def model(folder: Path, seed: int = 0) -> tuple[Path, str]:
    """Return a file of a small model, and devices with room for few samples of it."""
    rng = random.Random(seed)
    config = {**TINY, "num_hidden_layers": rng.randint(2, 5)}
    if seed % 3 == 1:
        config |= {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    path, figures = folder / "tiny.json", folder / "figures.json"
    path.write_text(json.dumps(config))
    kinds = {
        name: {"memory": rng.randint(150_000, 500_000), "launch": rng.choice([0, 0.05, 1])}
        for name in ("h100", "a100-80")
    }
    links = {name: {"latency": rng.choice([0, 0.01])} for name in ("nvlink3", "nvlink4", "ib-hdr")}
    figures.write_text(json.dumps({"devices": kinds, "links": links}))
    cluster = rng.choice(["2xh100", "h100:1+a100-80:1", "3xh100", "1xh100", "a100-80:2+h100:1"])
    return path, f"{cluster}@{figures}"


def chain_of(path: Path, cluster: str, batch: int, **words: Any) -> sp.PipelinePartition:
    """Return the layers at the last token of a batch, with the memory to read a sample."""
    step = sp.read(path, kind="pipeline-partition", cluster=cluster, phase="decode",
                   microbatch=batch, sequence=CONTEXT - 1, objective="sum", **words)  # fmt: skip
    read = sp.read(path, kind="pipeline-partition", cluster=cluster, sequence=CONTEXT, tokens=0)
    found: sp.PipelinePartition = step.replace(temporary=np.maximum(step.temporary, read.temporary))
    return found


@pytest.mark.parametrize("seed", range(16))
def test_the_front_is_that_of_all_stages_and_batches(tmp_path: Path, seed: int) -> None:
    path, cluster = model(tmp_path, seed)
    found = sp.plan_serving(path, cluster, context=CONTEXT, batches=[1, 2, 3, 7], time_limit=None)
    every: list[tuple[float, float]] = []
    for batch in (1, 2, 3, 7):
        for m in itertools.count(1):
            chain = chain_of(path, cluster, batch, tokens=batch * m * CONTEXT)
            some = [
                max(whole, m * stage) for stage, whole in (times(chain, c) for c in cuts(chain))
            ]
            if not some or m > 6:  # more only wait for each other, of three stages
                break
            every.append((min(some) / 1e9, batch * m * 1e9 / min(some)))
    points = [(one.token_seconds, one.tokens_a_second) for one in found.points]
    front = sorted({
        one for one in every
        if not any(o != one and o[0] <= one[0] and o[1] >= one[1] for o in every)
    })  # fmt: skip
    assert found.status is (sp.Status.OPTIMAL if every else sp.Status.INFEASIBLE)
    assert [t for t, _ in points] == pytest.approx([t for t, _ in front])
    assert [rate for _, rate in points] == pytest.approx([rate for _, rate in front])
    for one in found.points:
        chain = chain_of(path, cluster, one.batch, tokens=one.samples * CONTEXT)
        assert not chain.check(sp.PipelineSolution.in_order(one.boundaries))
    assert bool(found.reason) is not bool(every)


@pytest.mark.parametrize("seed", range(8))
def test_the_most_samples_are_those_beside_which_no_more_fit(tmp_path: Path, seed: int) -> None:
    path, cluster = model(tmp_path, seed)
    found = sp.plan_serving(path, cluster, context=CONTEXT)
    largest = max((one.batch for one in found.rooms if one.context == CONTEXT), default=0)
    k = found.stages
    for batch in range(1, largest + 3):
        chain = chain_of(path, cluster, batch, tokens=batch * k * CONTEXT)
        assert any(cuts(chain)) is (batch <= largest)
    assert (found.largest_context >= CONTEXT) is (largest > 0)


def test_copies_and_shares_of_layers_are_counted(tmp_path: Path) -> None:
    """Two copies serve twice as many samples in the same time."""
    path, _ = model(tmp_path)
    one = sp.plan_serving(path, "2xh100", context=CONTEXT, batches=[4])
    two = sp.plan_serving(path, "4xh100", context=CONTEXT, batches=[4], data=2)
    assert (two.stages, two.copies) == (one.stages, 2)
    assert [p.samples for p in two.points] == [2 * p.samples for p in one.points]
    assert [p.token_seconds for p in two.points] == [p.token_seconds for p in one.points]
    shared = sp.plan_serving(path, "4xh100", context=CONTEXT, batches=[4], tensor=2)
    assert (shared.stages, shared.devices) == (2, 2)


def test_a_limit_of_time_says_what_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(itertools.count())
    monkeypatch.setattr(search, "clock", lambda: next(now) * 0.2)
    found = sp.plan_serving(HOME / "llama.json", "4xh100", time_limit=20)
    assert found.status in (sp.Status.FEASIBLE, sp.Status.UNKNOWN)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"training": True}, "training"),
        ({"phase": "prefill"}, "phase"),
        ({"context": 1}, "context"),
        ({"batches": [0]}, "batches"),
        ({"sequence": 5}, "sequence"),
        ({"free_order": True}, "free_order"),
        ({"host_transfer": True}, "host_transfer"),
        ({"dtype": "int3"}, "dtype"),
    ],
)
def test_what_is_wrong_is_refused_by_name(said: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        sp.plan_serving(HOME / "llama.json", "4xh100", **said)
    assert refused.value.field == field


def test_models_that_write_nothing_serve_nothing(tmp_path: Path) -> None:
    config = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 9,
              "num_attention_heads": 2, "intermediate_size": 16,
              "max_position_embeddings": 64}  # fmt: skip
    path = tmp_path / "bert.json"
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match="token by token"):
        sp.plan_serving(path, "4xh100")


def test_the_command_says_what_is_answered(tmp_path: Path) -> None:
    path, _ = model(tmp_path)
    front = tmp_path / "front.csv"
    said = ("--context", "24", "--batches", "1,4", "--csv", front)
    done = run("serving", path, "--cluster", "2xh100", *said)
    assert done.returncode == 0, done.stderr
    assert "tiny: OPTIMAL, inference, 24 tokens a sample, 2 stages on 2xh100" in done.stdout
    assert front.read_text().startswith("batch,microbatches,samples,token_seconds")
    told = json.loads(run("serving", path, "--cluster", "2xh100", *said[:4], "--json").stdout)
    assert {point["batch"] for point in told["points"]} == {1, 4}
    for words, code in (
        (["layers.csv", "--cluster", "4xh100"], 2),
        (["llama.json"], 2),
        (["llama.json", "--cluster", "4xh100", "--batches", "x"], 2),
        (["llama.json", "--cluster", "1xh100"], 3),
    ):
        assert run("serving", HOME / words[0], *words[1:]).returncode == code
