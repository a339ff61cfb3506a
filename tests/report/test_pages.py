"""One page of whatever was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from tests.cli.shell import CHAIN, run
from tests.compare.test_page import Page

pytest.importorskip("plotly")
pytest.importorskip("matplotlib")


def chain(name: str = "five", **changes: Any) -> sp.PipelinePartition:
    cluster = sp.Cluster.uniform(2, memory=12)
    return sp.PipelinePartition.from_arrays(
        forward=[1, 5, 3, 2, 4], exclusive=[4] * 5, cluster=cluster, name=name, **changes
    )


def tuned() -> sp.Tuning:
    def make(microbatches: int) -> sp.PipelinePartition:
        return chain(microbatches=microbatches)

    return sp.tune(make, {"microbatches": [2, 4]}, search="grid")


def test_everything_that_was_found_stands_on_one_page(tmp_path: Path) -> None:
    instance = chain("<b>five</b>")
    result = sp.solve(instance)
    compared = sp.compare([instance], ["dp", "greedy"], jobs=0, store=tmp_path / "store")
    found = [
        result,
        sp.solve(chain("other")),
        sp.plan_model(instance),
        tuned(),
        sp.pareto(instance),
        sp.explain(instance),
        compared,
        sp.read_store(tmp_path / "store"),
    ]
    path = sp.report(found, tmp_path / "page.html")
    text = path.read_text()
    page = Page(text)
    assert text.count("<h2>") >= len(found)
    assert "<b>five" not in text, "names are escaped"
    assert "&lt;p&gt;" not in text, "and nothing else is"
    names = [given["id"] for _, given in page.tags if "id" in given]
    assert len(set(names)) == len(names)
    drawn = {given["id"] for _, given in page.tags if given.get("class") == "figure"}
    assert drawn == set(json.loads(page.scripts[0]))
    assert len(drawn) > 6
    assert text.count('src="data:image/svg+xml') == 2 + 5, (
        "tuning and front, and those of the store"
    )


def test_one_thing_gives_the_page_its_name(tmp_path: Path) -> None:
    hopeless = sp.solve(chain(fixed_cuts=[1]).replace(cluster=sp.Cluster.uniform(2, memory=4)))
    assert hopeless.status == "INFEASIBLE"
    text = sp.report(hopeless, tmp_path / "page.html").read_text()
    assert "<title>five</title>" in text
    assert "INFEASIBLE" in Page(text).text
    for given, message in (
        (chain(), "PipelinePartition has no page"),
        ([], "holds nothing"),
        (sp.Result(status=hopeless.status, termination=hopeless.termination), "of\\(instance\\)"),
    ):
        with pytest.raises(sp.InputError, match=message):
            sp.report(given, tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_results_and_tunings_are_read_again(tmp_path: Path) -> None:
    instance, found = chain(), tuned()
    result = sp.solve(instance)
    path = tmp_path / "result.json"
    result.to_json(path)
    again = sp.read_result(path, instance)
    assert again.to_dict() == result.to_dict()
    assert again.problem is instance
    sp.write_solution(instance, result, path)
    alone = sp.read_result(path, instance)
    assert (alone.objective, alone.bound, alone.status) == (result.objective, None, "FEASIBLE")
    for changed, message in (
        ({"bound": 1_000}, "bound"),
        ({"status": "INFEASIBLE"}, "status"),
        ({"solution": {"boundaries": [0, 1, 5], "devices": [0, 1]}}, "capacity"),
        ({"trace": [{"time": 0}]}, "trace|no result"),
    ):
        path.write_text(json.dumps({**result.to_dict(), **changed}))
        with pytest.raises(sp.InputError, match=message):
            sp.read_result(path, instance)
    document = found.to_dict()
    path.write_text(json.dumps(document))
    read = sp.read_tuning(path)
    assert (read, read.to_dict()) == (found, document)
    first = document["evaluations"][0]
    for broken, field in (
        ({"version": 2}, "version"),
        ({"monotone": ["batch"]}, "monotone"),
        ({"evaluations": [{**first, "cycles": "many"}]}, "evaluations"),
        ({"evaluations": [{"cycles": 3}]}, "evaluations"),
    ):
        path.write_text(json.dumps({**document, **broken}))
        with pytest.raises(sp.InputError, match=field):
            sp.read_tuning(path)


def test_the_command_takes_files_of_every_sort(tmp_path: Path) -> None:
    model, solved, page = (tmp_path / name for name in ("m.json", "r.json", "page.html"))
    plan, tuning, store = (tmp_path / name for name in ("plan.json", "tuning.json", "store"))
    model.write_text(json.dumps(CHAIN))
    instance = sp.read(model)
    assert isinstance(instance, sp.PipelinePartition)
    sp.solve(instance).to_json(solved)
    sp.plan_model(instance).to_json(str(plan))
    tuning.write_text(json.dumps(tuned().to_dict(), indent=2))
    sp.compare([instance], ["dp"], jobs=0, store=store)
    done = run("report", model, solved, solved, plan, tuning, store, "-o", page, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"written": str(page), "shown": 5}
    assert page.read_text().count("<h2>") >= 5
    for wrong, message in (
        ((solved,), "r.json: needs its instance"),
        ((plan, solved), "r.json: needs its instance"),
        ((model, plan), "m.json: is an instance without a solution"),
        ((model,), "m.json: is an instance without a solution"),
        ((model, solved, "pipeline/bert-base"), "bert-base: is an instance without a solution"),
        ((tmp_path / "none.json",), "none.json: no such file"),
        ((tmp_path,), "is no store of results"),
        ((model, tuning, "-o", tuning), "tuning.json: is a file that the command reads"),
        ((model, solved, "--devices", "3"), "r.json: digest"),
    ):
        words = wrong if "-o" in wrong else (*wrong, "-o", tmp_path / "no.html")
        told = run("report", *words)
        assert (told.returncode, message in told.stderr) == (2, True), told.stderr
        assert told.stderr.count("\n") == 1
    assert not (tmp_path / "no.html").exists()


def test_captions_of_a_plan_tell_the_microbatches_of_its_step(tmp_path: Path) -> None:
    """Those of the partition are what is in flight: "1 microbatch (4 fill the pipeline)"."""
    plan = sp.plan_model(sp.load("pipeline/vgg-16", training=True), microbatches=12, time_limit=1)
    (whole, *_) = plan.levels
    assert whole.instance.microbatches < 12  # type: ignore[attr-defined]
    text = Page(sp.report(plan, tmp_path / "page.html").read_text()).text
    assert "training with 12 microbatches, bottleneck without transfers, 1 in flight" in text
    assert "1 microbatch " not in text
