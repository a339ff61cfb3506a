"""What the catalog's answers rest on: their proofs are verified, and forged ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.evidence import VERIFIABLE
from tests.cli.shell import run

SAMPLE = (
    "pipeline/bert-base",
    "pipeline/gpt2-small",
    "graph/alexnet",
    "schedule/uniform",
    "phases/six-layers",
    "groups/squeezenet",
    "packing/above-load",
)

LINKS = {"devices": 4, "bandwidth": "10GB/s"}
PUBLIC: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pipedream/vgg16_graph.txt", {"kind": "pipeline-partition", "training": True, **LINKS}),
    ("pipedream/alexnet_graph.txt", {"kind": "graph-partition", **LINKS}),
    ("pipedream/gnmt_graph.txt", {"objective": "replicated", "kind": "graph-partition", **LINKS}),
    ("dnn-partitioning/throughput/bert24_inference.json", {}),
    ("executorch/convnext-tiny.json", {}),
    ("minimalloc/input.12.csv", {}),
)


@pytest.mark.parametrize("name", SAMPLE)
def test_what_the_catalog_proves_is_verified(name: str) -> None:
    require_verified(sp.load(name))


@pytest.mark.parametrize(("file", "given"), PUBLIC)
def test_what_is_proved_of_public_data_is_verified(
    data_dir: Path, file: str, given: dict[str, Any]
) -> None:
    require_verified(sp.read(data_dir / file, **given))


def require_verified(instance: Any) -> None:
    """Require that an optimum is verified by its evidence, and a bound above it is not."""
    result = sp.solve(instance, time_limit=20, options={"proof": True})
    assert result.status == "OPTIMAL"
    assert result.objective is not None
    assert result.proof in VERIFIABLE
    found = sp.check_result(instance, result.to_dict())
    assert found.valid
    assert not found.unverified
    higher = {**result.to_dict(), "objective": result.objective, "bound": result.objective + 1}
    assert not sp.check_result(instance, higher).valid


def test_a_worse_solution_is_no_optimum_by_its_word(tmp_path: Path) -> None:
    """Written by hand: status OPTIMAL, bound = objective, and nothing that shows it."""
    instance = sp.load("packing/above-load")
    worse = sp.solve(instance, "first-fit-size")
    lie = {**worse.to_dict(), "status": "OPTIMAL", "termination": "PROVED", "trace": []}
    lie |= {"bound": worse.objective, "gap": 0.0}
    result = tmp_path / "lie.json"
    for proof, evidence, code in (
        (None, {}, 5),
        ("engine", {}, 5),
        ("search", {}, 5),
        ("witness", {"rule": "load"}, 4),
        ("log", {"rule": "misfit"}, 4),
        ("dual", {"rule": "no-such-rule"}, 4),
        ("oath", {}, 4),
    ):
        result.write_text(json.dumps({**lie, "proof": proof, "evidence": evidence}))
        done = run("check", "packing/above-load", result)
        assert done.returncode == code, (proof, done.stdout)
    done = run("check", "packing/above-load", result, "--prove")
    assert done.returncode == 4
