"""Figures of the cost model from files, each term worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.hugging_face import costs
from stagepack.instances import accelerators, clusters

HOME = Path(__file__).parents[2] / "examples"
LAYER = 21  # of Llama 2 70B, alone
MATRICES = 855_638_016
PAIRS = 8_192 * 4_096 * 4_097  # 4 a d for each of s (s + 1) / 2 pairs
EXPERT = 3 * 4_096 * 14_336  # of Mixtral 8x7B
DENSE = 4_096 * (2 * 4_096 + 2 * 1_024) + 4_096 * 8  # attention and router


def figures(folder: Path, **said: Any) -> str:
    path = folder / "Figures.json"
    path.write_text(json.dumps(said))
    return f"2xh100@{path}"


def chain(name: str, cluster: str, **given: Any) -> sp.PipelinePartition:
    found: sp.PipelinePartition = sp.read(
        HOME / name, kind="pipeline-partition", cluster=cluster, **given
    )
    return found


@pytest.mark.parametrize("share", [0.5, 0.4])
def test_products_and_pairs_reach_their_shares(tmp_path: Path, share: float) -> None:
    """Their times add up: 2 n P / (share peak) + pairs / (another share peak)."""
    said = {"h100": {"products": share, "attention": 0.25}}
    found = chain("llama.json", figures(tmp_path, devices=said))
    by_hand = 2 * 4_096 * MATRICES / (share * 989_500) + PAIRS * 2 / (0.25 * 989_500)
    assert found.forward[LAYER] == math.ceil(by_hand)
    # Where the command says a share, it is that of all.
    whole = chain("llama.json", figures(tmp_path, devices=said), utilisation=0.5)
    assert whole.forward.tolist() == chain("llama.json", "2xh100").forward.tolist()


def test_experts_reach_theirs(tmp_path: Path) -> None:
    said = {"h100": {"experts": 0.2, "launch": 7.5}}
    found = chain("mixtral.json", figures(tmp_path, devices=said))
    pairs = 2 * 4_096 * 4_096 * 4_097
    by_hand = 2 * 4_096 * DENSE / 494_750 + 2 * 4_096 * 2 * EXPERT / 197_900 + pairs / 494_750
    assert found.forward[LAYER] == math.ceil(by_hand + 7_500)


def test_memory_reaches_its_share(tmp_path: Path) -> None:
    """In decoding: weights, two vectors and the cache of 4,096 tokens, at 80 % of 3,000 GB/s."""
    said = {"h100": {"bandwidth": 3_000, "reads": 0.8, "memory": 79 * 10**9}}
    found = chain("llama.json", figures(tmp_path, devices=said), phase="decode")
    read = 2 * (MATRICES + 2 * 8_192 + 2 * 8_192 + 2_048 * 4_096)
    assert found.forward[LAYER] == math.ceil(read / 2_400)
    assert {device.memory for device in found.cluster.devices} == {79 * 10**9}


def test_links_have_their_rate_and_latency(tmp_path: Path) -> None:
    """n h w bytes after the latency, over either of two unlike links."""
    links = {"nvlink4": {"rate": 400, "latency": 10}, "ib-ndr": {"rate": 40}}
    cut = sp.PipelineSolution.in_order((0, 41, 83))
    sent = 2 * 4_096 * 8_192
    near = chain("llama.json", figures(tmp_path, links=links))
    assert sp.estimate(near, cut).stages[1].recv == int(10_000 + sent / 400)
    far = chain("llama.json", figures(tmp_path, links=links).replace("2xh100", "2x1xh100"))
    assert sp.estimate(far, cut).stages[1].recv == int(1_000 * accelerators.FAR + sent / 40)


def test_what_a_file_does_not_say_stays(tmp_path: Path) -> None:
    cluster = figures(tmp_path, devices={"a100-80": {"tflops": 1}}, links={"pcie4": {"rate": 1}})
    assert clusters.cluster(cluster).devices == clusters.cluster("2xh100").devices
    named = cluster.replace("@", "@pcie4@")
    link = clusters.cluster(named).devices[0].recv
    assert link is not None
    assert link.GBps == 10**9 / 2**30
    assert clusters.cluster(named.replace("2xh100", "2xa100-80")).devices[0].speed == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"devices": {"h1": {}}}, r"Figures.json: unknown name 'h1'; choose one of a100-40"),
        ({"links": {"nvlink": {}}}, "unknown name 'nvlink'; choose one of nvlink3"),
        ({"devices": {"h100": {"products": 2}}}, r"devices\.h100\.products|products"),
        ({"devices": {"h100": {"flops": 2}}}, "flops"),
        ({"device": {}}, "device"),
    ],
)
def test_figures_that_are_wrong_are_refused_by_name(
    tmp_path: Path, said: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        chain("llama.json", figures(tmp_path, **said))
    assert refused.value.field == "cluster"
    with pytest.raises(InputError, match="cluster"):
        chain("llama.json", "2xh100@nothing-there.json")


def test_measured_layers_take_the_place_of_estimates(tmp_path: Path) -> None:
    """By name or pattern; what is empty stays, and a backward pass follows its forward pass."""
    table = tmp_path / "layers.csv"
    table.write_text(
        "name,forward,backward,exclusive,temporary,stash,output\n"
        "model.layers.*,10000000,,,,,\n"
        "model.layers.3,12000000,30000000,5000,600,70,8192\n"
    )
    given: dict[str, Any] = {"training": True, "sequence": 1024}
    own = chain("llama.json", "2xh100", **given)
    found = chain("llama.json", "2xh100", measured=str(table), **given)
    names = list(found.layer_names or ())
    plain, third = names.index("model.layers.7"), names.index("model.layers.3")
    assert found.forward[plain] == 10_000_000
    assert found.backward[plain] == 20_000_000  # twice, as estimated
    assert found.stash[plain] == own.stash[plain]
    assert (found.forward[third], found.backward[third]) == (12_000_000, 30_000_000)
    assert (found.stash[third], found.temporary[third]) == (70, 600)
    assert found.in_bytes[third + 1] == 8_192
    assert found.forward[0] == own.forward[0]
    result = sp.solve(found)
    assert result.status is sp.Status.OPTIMAL or result.reason
    exclusive = sum(row[third] for row in found.exclusive.values())
    assert exclusive == 5_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,forward\nmodel.layer.1,5\n", r"layers.csv: line 2: 'model.layer.1' names no layer"),
        ("forward\n5\n", "layers.csv: line 1: no names of layers"),
        ("name,forward\nmodel.norm,x\n", "line 2, column forward: 'x' is not a number"),
        ("name,carry\nmodel.norm,1\n", "column carry is not a figure of layers here"),
        ("", "layers.csv"),
    ],
)
def test_tables_that_are_wrong_are_refused_by_line(tmp_path: Path, text: str, words: str) -> None:
    table = tmp_path / "layers.csv"
    table.write_text(text)
    with pytest.raises(InputError, match=words) as refused:
        chain("llama.json", "2xh100", measured=str(table))
    assert refused.value.field == "measured"


def test_a_roofline_is_that_of_its_accelerator() -> None:
    """The figures of the catalog, in nanoseconds."""
    found = costs.Roofline.of(accelerators.ACCELERATORS["h100"])
    assert found == costs.Roofline(494_750.0, 3_350.0)
    assert found.cycles(costs.Flops(494_750, 494_750, 989_500), 3_350) == 4
    assert found.cycles(costs.Flops(0, 0, 0), 6_701) == 3
