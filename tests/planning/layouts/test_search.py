"""The best layout over all factorisations, against enumeration, and by relations."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.hugging_face.config import Named, chain, shares_of, work_of
from stagepack.formats.hugging_face.layout import Layout
from stagepack.planning.layouts import LayoutPlan, plan_layout
from stagepack.planning.layouts.search import ROOM
from tests.cli.shell import run
from tests.imports import ROOT

EXAMPLES = ROOT / "examples"


def drawn(rng: random.Random) -> tuple[dict[str, Any], str, int, dict[str, Any]]:
    """Return a small model, devices, samples of a step, and what is said besides."""
    heads = rng.choice([2, 4])
    config: dict[str, Any] = {
        "model_type": rng.choice(["llama", "mixtral"]),
        "hidden_size": 64 * heads,
        "intermediate_size": rng.choice([128, 512, 1024]),
        "num_hidden_layers": rng.randint(1, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([1, heads]),
        "vocab_size": rng.choice([500, 20_000]),
        "num_local_experts": rng.choice([2, 4]),
        "num_experts_per_tok": 2,
    }
    cluster = rng.choice(["2xh100", "4xh100", "2x2xh100", "2x2xl40s", "h100:2+a100-80:2"])
    given: dict[str, Any] = {"training": rng.random() < 0.8, "sequence": rng.choice([128, 1024])}
    if rng.random() < 0.5:  # so little that not everything fits
        weights = 4 * config["hidden_size"] ** 2 * config["num_hidden_layers"]
        given["capacity"] = int(weights * rng.uniform(3, 60)) + 12_000_000
    if rng.random() < 0.3:
        given["zero"] = rng.choice([0, 2, 3])
    return config, cluster, rng.choice([2, 4, 6]), given


def ways(named: Named, devices: int, node: int, samples: int, training: bool) -> Iterator[Layout]:
    """Yield all layouts by the rules of the page, all degrees one by one."""
    said = named.fields.given
    heads, groups = said["num_attention_heads"], said["num_key_value_heads"]
    experts = said["num_local_experts"] if said["model_type"] == "mixtral" else 1
    layers = said["num_hidden_layers"] + 3  # embedding, norm and head
    every = range(1, devices + 1)
    for t, p, d, e in product(every, every, every, every):
        if t * p * d != devices or p > layers or node % t or samples % d:
            continue
        if heads % t or said["intermediate_size"] % t or (groups % t and t % groups):
            continue
        if d % e or experts % e:
            continue
        for b in (1, 2, 4, 8):
            if (samples // d) % b == 0:
                for again in (False, True)[: 1 + training]:
                    yield Layout(t, p, d, e, b, samples // d // b, again)


def enumerated(named: Named, given: dict[str, Any], cluster: str, samples: int) -> float:
    """Return the least cycles of a step, over all layouts, stages and schedules."""
    sizes = {"2xh100": (2, 2), "4xh100": (4, 4), "2x2xh100": (4, 2), "2x2xl40s": (4, 2)}
    devices, node = sizes.get(cluster, (4, 2))
    least = math.inf
    for way in ways(named, devices, node, samples, given["training"]):
        words = {**given, "cluster": cluster, **way.words(training=given["training"])}
        whole = chain(named, words)
        if "capacity" not in given:
            room = [int(ROOM * (one.memory or 0)) for one in whole.cluster.devices]
            whole = chain(named, {**words, "capacity": room})
        shares, work = shares_of(named, words), work_of(named, words)
        reductions = [math.ceil(shares.reduction(layer, work)) for layer in named.model.layers]
        for cut in combinations(range(1, whole.n), way.pipeline - 1):
            bounds = (0, *cut, whole.n)
            solution = sp.PipelineSolution(bounds, tuple(range(way.pipeline)))
            if whole.replace(microbatches=1).check(solution):
                continue
            try:
                asked = sp.PipelineSchedule.from_partition(
                    whole.replace(microbatches=1),
                    solution,
                    microbatches=way.microbatches,
                    split=False,
                )
            except InputError:
                continue  # not even one microbatch fits beside the layers
            found = sp.solve(asked, time_limit=None)
            if found.objective is not None:
                assert found.status == "OPTIMAL"
                spans = pairwise(bounds)
                slowest = max(sum(reductions[first:end]) for first, end in spans)
                least = min(least, found.objective + slowest)
    return least


@pytest.mark.parametrize("seed", range(8))
def test_the_best_layout_is_that_of_enumeration(tmp_path: Path, seed: int) -> None:
    config, cluster, samples, given = drawn(random.Random(seed))
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(config))
    named = Named.read(file.read_bytes(), file.name)
    expected = enumerated(named, given, cluster, samples)
    found = plan_layout(file, cluster, global_batch=samples, time_limit=None, **given)
    if found.status == "INFEASIBLE":
        assert expected == math.inf
        return
    assert found.objective is not None
    assert found.bound is not None
    assert found.bound <= expected <= found.objective
    if found.status == "OPTIMAL":
        assert found.objective == expected


def test_soak_compares(tmp_path: Path) -> None:
    """What is drawn is no one thing: some fits nowhere, and degrees of all kinds win."""
    won: set[tuple[bool, ...]] = set()
    for seed in range(24):
        config, cluster, samples, given = drawn(random.Random(seed))
        file = tmp_path / "tiny.json"
        file.write_text(json.dumps(config))
        found = plan_layout(file, cluster, global_batch=samples, **given)
        if found.layout is None:
            won.add((False,))
        else:
            one = found.layout
            won.add((one.tensor > 1, one.pipeline > 1, one.data > 1))
    assert (False,) in won
    assert len(won) >= 4


def llama(**given: Any) -> LayoutPlan:
    usual: dict[str, Any] = {"global_batch": 64, "training": True}
    return plan_layout(EXAMPLES / "llama.json", "2x8xh100", **{**usual, **given})


def test_a_degree_that_is_given_is_kept_and_costs() -> None:
    free = llama()
    assert free.status == "OPTIMAL"
    for name, value in (("tensor", 4), ("pipeline", 4), ("microbatch", 2)):
        kept = llama(**{name: value})
        assert getattr(kept.layout, name) == value
        assert (kept.objective or 0) >= (free.objective or 0)
    again = llama(keep="inputs")
    assert again.layout is not None
    assert again.layout.recompute


def test_the_table_has_the_best_first_and_no_bound_above_its_step() -> None:
    found = llama()
    steps = [one.objective for one in found.candidates if one.objective is not None]
    assert steps == sorted(steps)
    assert steps[0] == found.objective
    for one in found.candidates:
        assert one.objective is None or one.bound <= one.objective
        assert min(one.computing, one.exchanging, one.reducing) >= 0
    assert found.plan is not None
    assert not found.plan.check()
    room = ROOM * 80e9
    assert sum(found.memory.values()) == found.plan.memory
    assert found.plan.memory <= room


def test_layers_with_alternatives_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"recompute: .* all layers or none"):
        llama(recompute="full")


def test_the_document_of_a_layout_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "layout.json"
    llama().to_json(str(path))
    assert run("check", str(path)).returncode == 0
    told = json.loads(path.read_text())
    false = (("objective", 1), ("bound", 2 * told["objective"]), ("status", "UNKNOWN"))
    for name, value in false:
        path.write_text(json.dumps({**told, name: value}, indent=2))
        answer = run("check", str(path))
        assert (answer.returncode, f"claim: {name}" in answer.stdout) == (4, True)


def test_faster_links_and_more_devices_are_never_worse() -> None:
    slow = plan_layout(
        EXAMPLES / "llama.json", "2x8xh100@pcie4/ib-hdr", global_batch=64, training=True
    )
    assert (slow.bound or 0) >= (llama().objective or 0)


def test_what_fits_nowhere_says_how_much_is_missing() -> None:
    found = plan_layout(EXAMPLES / "llama.json", "4xh100", global_batch=16, training=True)
    assert (found.status, found.layout) == ("INFEASIBLE", None)
    assert "15 of them might hold it" in found.reason
    with pytest.raises(InputError, match="has no layout"):
        found.command("megatron")


def test_tools_are_told_all_degrees() -> None:
    found = llama()
    said = found.command("megatron").split()
    one = found.layout
    assert one is not None
    assert said[said.index("--tensor-model-parallel-size") + 1] == str(one.tensor)
    assert said[said.index("--global-batch-size") + 1] == "64"
    with pytest.raises(InputError, match="training"):
        found.command("vllm")
    served = plan_layout(
        EXAMPLES / "llama.json", "4xh100", global_batch=8, phase="decode", sequence=2048
    )
    assert "vllm serve MODEL" in served.command("vllm")
    with pytest.raises(InputError, match="inference"):
        served.command("megatron")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"global_batch": 0}, "global_batch"),
        ({"tensor": 3}, "tensor"),
        ({"pipeline": 5}, "pipeline"),
        ({"expert": 2}, "expert"),
        ({"global_batch": 3, "microbatch": 2}, "microbatch"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_divides_nothing_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        llama(**given)
    assert caught.value.field == field


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "layers.csv"
    other.write_text("name,forward\na,1\n")
    with pytest.raises(InputError, match=r"no config\.json"):
        plan_layout(other, "2xh100", global_batch=2)


def test_shell(tmp_path: Path) -> None:
    file, out = tmp_path / "flags.txt", tmp_path / "plan.json"
    words = ["plan", str(EXAMPLES / "llama.json"), "--cluster", "2x8xh100", "--training"]
    words += ["--global-batch", "64", "--export", str(file), "--as", "megatron", "-o", str(out)]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "tokens a second" in done.stdout
    assert "write it: --export FILE --as torchtitan" in done.stdout, "nothing is cut"
    assert file.read_text().startswith("--tensor-model-parallel-size")
    written = json.loads(out.read_text())
    assert written["layout"]["tensor"] * written["layout"]["pipeline"] <= 16
    assert run(*words, "--split").returncode == 2
    missing = run("plan", str(EXAMPLES / "llama.json"), "--global-batch", "64")
    assert missing.returncode == 2
    assert "--cluster" in missing.stderr
    none = run(
        "plan",
        str(EXAMPLES / "llama.json"),
        "--cluster",
        "4xh100",
        "--training",
        "--global-batch",
        "16",
    )
    assert none.returncode == 3
