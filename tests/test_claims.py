"""What a result file claims is recomputed; what cannot be is said to be open."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.claims import Verdict
from stagepack.evidence import VERIFIABLE
from stagepack.instances.base import fields_of
from tests.cli.shell import run

INSTANCES: dict[str, Any] = {
    "pipeline": sp.PipelinePartition.from_arrays(
        [1, 5, 3, 2, 4], devices=2, exclusive=[4] * 5, capacity=12, name="five"
    ),
    "fractions": sp.PipelinePartition.from_arrays([0.1, 0.7, 0.3, 0.55], devices=2, name="parts"),
    "tiny": sp.PipelinePartition.from_arrays([1e-14, 7e-14, 3e-14, 5e-14], devices=2, name="tiny"),
    "fit": sp.LmemPacking.from_arrays([4, 4, 4], [0, 3, 0], [3, 9, 9], capacity=12, name="fit"),
    "peak": sp.LmemPacking.from_arrays([4, 4, 4], [0, 3, 0], [3, 9, 9], name="peak"),
    "schedule": sp.load("schedule/uniform"),
    "phases": sp.load("phases/six-layers"),
    "groups": sp.load("groups/examples/balanced-rows"),
    "graph": sp.load("graph/alexnet", devices=2),
}
LIES: dict[str, dict[str, Any]] = {
    "objective -1": {"objective": -1},
    "objective in words": {"objective": "zero"},
    "objective true": {"objective": True},
    "no objective": {"objective": None},
    "bound above": {"bound": 10**9},
    "bound in words": {"bound": "high"},
    "gap": {"gap": 0.25},
    "gap in words": {"gap": "none"},
    "infeasible": {"status": "INFEASIBLE"},
    "nothing known": {"status": "UNKNOWN"},
    "no status": {"status": "BEST"},
    "optimal with a bound below": {"bound": -5, "status": "OPTIMAL"},
    "optimal without a bound": {"bound": None, "gap": None, "status": "OPTIMAL"},
    "proved, not optimal": {"termination": "PROVED", "status": "FEASIBLE"},
    "out of time, optimal": {"termination": "TIME_LIMIT", "status": "OPTIMAL"},
    "no termination": {"termination": "BORED"},
    "another kind": {"problem": "travelling-salesman"},
    "another objective": {"objective_name": "beauty"},
    "violations": {"violations": ["capacity: too much"]},
    "digest": {"digest": 5},
    "no solution": {"solution": None},
    "trace": {"trace": [{"time": 0, "kind": "incumbent", "value": 10**9, "source": ""}]},
    "trace of words": {"trace": "long"},
    "trace of zero": {"trace": 0},
    "trace before its start": {
        "trace": [{"time": -1, "kind": "bound", "value": -9, "source": ""}],
        "bound": -9,
    },
    "method": {"method": "no-such"},
    "no method": {"method": None},
    "runtime": {"runtime": -5},
    "setup": {"setup_time": "x"},
    "name": {"instance": 5},
    "engine": {"engine": 7},
    "no engine": {"engine": "abacus"},
    "versions": {"versions": 3},
    "version": {"versions": {"python": 3}},
    "options": {"options": [1]},
    "option": {"options": {"colour": 1}},
    "option of the method": {"options": {"method": []}},
    "option of the start": {"options": {"warm_start": 5}},
    "seed": {"options": {"seed": "z"}},
    "limit": {"options": {"time_limit": -1}},
    "reason": {"reason": []},
    "source": {"bound_source": 5},
    "fields": {"instance_fields": {"objective": "beauty"}},
    "fields in words": {"instance_fields": "all"},
    "unknown": {"kind": "graph-partition"},
    "objective beyond floats": {"objective": 10**400},
    "bound beyond floats": {"bound": -(10**400)},
    "gap beyond floats": {"gap": 10**400},
    "gap of what is too far apart": {
        "solution": None,
        "objective": 2**1023,
        "bound": -(2**1023),
        "gap": 2.0,
    },
    "trace beyond floats": {
        "trace": [{"time": 10**400, "kind": "bound", "value": 10**400, "source": ""}]
    },
}


@functools.cache
def true(name: str) -> dict[str, Any]:
    """What a result of an instance says: solved when it is first asked for, not when collected."""
    return sp.solve(INSTANCES[name], time_limit=20).to_dict()


@pytest.mark.parametrize("name", INSTANCES)
def test_what_solve_writes_is_true(name: str) -> None:
    found = sp.check_result(INSTANCES[name], true(name))
    assert found.valid
    assert found.objective == true(name)["objective"]
    verdicts = {claim.name: str(claim.verdict) for claim in found.claims}
    for claim in ("digest", "problem", "objective_name", "violations", "objective", "gap"):
        assert verdicts[claim] == "confirmed", claim
    assert verdicts["trace"] == "unverified"
    assert (verdicts["bound"] == "confirmed") == (true(name)["proof"] in VERIFIABLE)
    assert found.to_dict()["claims"][0].keys() == {
        "claim", "claimed", "recomputed", "verdict", "detail"
    }  # fmt: skip
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", INSTANCES)
def test_what_every_method_writes_is_true(name: str) -> None:
    instance = INSTANCES[name]
    for method in sp.methods(instance):
        if method.available:
            result = sp.solve(instance, method.name, time_limit=0.3)
            assert not sp.check_result(instance, result).false, method.name


def test_every_event_of_a_trace_is_known() -> None:
    chain = sp.PipelinePartition.from_arrays([5, 5, 10, 2.5, 5, 10], devices=2)
    unused = sp.solve(chain, "milp-assignment")
    assert "warm-start-unused" in [event.kind for event in unused.trace.events]
    assert sp.check_result(chain, unused).valid
    peak = sp.load("packing/above-load")
    packing = peak.replace(objective="fit", capacity=sp.solve(peak).bound)
    over = sp.solve(packing, "first-fit-size")
    assert "over-capacity" in [event.kind for event in over.trace.events]
    assert sp.check_result(packing, over).valid


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
def test_every_false_claim_is_named(name: str, lie: dict[str, Any]) -> None:
    found = sp.check_result(INSTANCES[name], {**true(name), **lie})
    assert not found.valid
    assert {claim.name for claim in found.false} & set(lie) or "solution" in lie
    assert all(claim.detail for claim in found.false)


@pytest.mark.parametrize("factor", [0, -1, 0.8, 1.25, 1 + 1e-7])
def test_small_figures_are_false_where_they_differ_in_proportion(factor: float) -> None:
    value = true("tiny")["objective"]
    for lie in ({"objective": factor * value}, {"bound": max(factor, 1.25) * value}):
        found = sp.check_result(INSTANCES["tiny"], {**true("tiny"), **lie})
        assert {*lie} <= {claim.name for claim in found.false}


@pytest.mark.parametrize("lie", [1, "none", [None], ["capacity: too much"], None])
def test_without_a_solution_no_rule_is_broken(lie: Any) -> None:
    instance = INSTANCES["fit"].replace(capacity=4)
    infeasible = sp.solve(instance).to_dict()
    assert infeasible["status"] == "INFEASIBLE"
    assert sp.check_result(instance, infeasible).valid
    (false,) = sp.check_result(instance, {**infeasible, "violations": lie}).false
    assert false.name == "violations"


def test_methods_that_prove_nothing_tell_the_truth_too() -> None:
    for name, method in (("pipeline", "greedy"), ("peak", "first-fit"), ("phases", "greedy")):
        result = sp.solve(INSTANCES[name], method) if method in _names(name) else None
        if result is not None:
            assert sp.check_result(INSTANCES[name], result).valid, method
    limited = sp.solve(INSTANCES["pipeline"], "greedy", target=10**6)
    assert limited.termination == "TARGET"
    assert sp.check_result(INSTANCES["pipeline"], limited).valid
    missed = {**limited.to_dict(), "options": {"target": 1, "gap": 0}}
    (false,) = sp.check_result(INSTANCES["pipeline"], missed).false
    assert false.name == "termination"


def _names(name: str) -> list[str]:
    return [method.name for method in sp.methods(INSTANCES[name])]


def test_solving_again_judges_bounds_and_proofs() -> None:
    instance = INSTANCES["pipeline"]
    worse = {**true("pipeline"), "solution": {"boundaries": [0, 3, 5], "devices": [0, 1]}}
    worse = {**worse, "objective": 9, "trace": []}
    assert instance.evaluate(sp.PipelineSolution((0, 3, 5), (0, 1))) == 9
    loose = instance.replace(exclusive=[1] * 5)
    lied = {**sp.solve(loose, "dp").to_dict(), "trace": []}
    lied |= {"solution": {"boundaries": [0, 1, 5], "devices": [0, 1]}, "objective": 14}
    lied |= {"bound": 14, "gap": 0.0, "status": "OPTIMAL"}
    assert verdict(sp.check_result(loose, lied), "proof") is Verdict.FALSE
    lied |= {"proof": "search", "evidence": {}}
    file_alone = sp.check_result(loose, lied)
    assert file_alone.valid
    assert verdict(file_alone, "bound") is verdict(file_alone, "status") is Verdict.UNVERIFIED
    again = sp.check_result(loose, lied, prove=True)
    assert {claim.name for claim in again.false} == {"bound", "status", "termination"}
    assert again.to_dict()["again"][0]["objective"] == 9
    honest = sp.check_result(instance, true("pipeline"))
    assert verdict(honest, "bound") is verdict(honest, "status") is Verdict.CONFIRMED


@pytest.mark.parametrize(("capacity", "word"), [(9, "confirmed"), (12, "false")])
def test_solving_again_judges_infeasible(capacity: int, word: str) -> None:
    instance = sp.PipelinePartition.from_arrays(
        [1, 5, 3, 2, 4], devices=2, exclusive=[4] * 5, capacity=capacity
    )
    claim: dict[str, Any] = {
        "status": "INFEASIBLE",
        "termination": "PROVED",
        "digest": instance.digest,
    }
    claim |= {"solution": None, "objective": None, "bound": None, "gap": None}
    alone = {"confirmed": "confirmed", "false": "unverified"}
    assert str(verdict(sp.check_result(instance, claim), "status")) == alone[word]
    again = sp.check_result(instance, claim, prove=True)
    assert str(verdict(again, "status")) == str(verdict(again, "termination")) == word


def test_no_log_is_called_a_witness() -> None:
    nodes = sp.GraphPartition.from_arrays([3, 1, 4, 2], accelerators=2)
    said = {**sp.solve(nodes).to_dict(), "proof": "log", "evidence": {"rule": "ideals"}}
    assert verdict(sp.check_result(nodes, said), "proof") is Verdict.CONFIRMED
    for better in ("witness", "dual"):
        assert verdict(sp.check_result(nodes, said | {"proof": better}), "proof") is Verdict.FALSE


def verdict(found: sp.ResultCheck, name: str) -> Verdict:
    (claim,) = (claim for claim in found.claims if claim.name == name)
    return claim.verdict


def test_another_instance_is_refused_or_compared() -> None:
    smaller = INSTANCES["fit"].replace(capacity=8)
    with pytest.raises(sp.InputError, match=r"capacity is 12 there, 8 here; .*--anyway"):
        sp.check_result(smaller, true("fit"))
    found = sp.check_result(smaller, true("fit"), anyway=True)
    assert verdict(found, "digest") is Verdict.DIFFERS
    assert "capacity is 12 there, 8 here" in found.claims[0].detail
    assert found.valid == (true("fit")["objective"] <= 8)
    tight = INSTANCES["pipeline"].replace(exclusive=[5] * 5)
    found = sp.check_result(tight, true("pipeline"), anyway=True)
    assert [violation.rule for violation in found.violations] == ["capacity"]
    assert not found.valid
    assert not found.false, "the file is right about its own instance"
    old = {key: true("fit")[key] for key in true("fit") if key != "instance_fields"}
    assert "does not say" in sp.check_result(smaller, old, anyway=True).claims[0].detail


def test_a_chip_that_differs_from_its_parts_is_named() -> None:
    instance = INSTANCES["phases"]
    document = sp.solve(instance, time_limit=5).to_dict()
    document["instance_fields"]["chip"] = "#other"
    (false,) = sp.check_result(instance, document).false
    assert (false.name, false.detail) == ("instance_fields", "chip differs")


def test_the_chip_that_differs_is_named() -> None:
    there = sp.load("groups/squeezenet", chip="cv184x")
    result = json.loads(json.dumps(sp.solve(there, "layerwise").to_dict()))
    with pytest.raises(sp.InputError, match=r": chip\.name is cv184x there, bm1684x here; give"):
        sp.check_result(sp.load("groups/squeezenet"), result)
    with pytest.raises(sp.InputError, match=r": chip\.memory is 65,536 there, 9,999 here; give"):
        sp.check_result(sp.load("groups/squeezenet", chip="cv184x", capacity=9999), result)


def test_another_name_is_told_and_not_false() -> None:
    found = sp.check_result(INSTANCES["fit"], {**true("fit"), "instance": "other"})
    assert found.valid
    assert verdict(found, "instance") is Verdict.DIFFERS
    assert "is called fit" in str(found.claims[-1])


def test_fields_tell_instances_apart() -> None:
    for name, instance in INSTANCES.items():
        fields = fields_of(instance)
        assert fields == fields_of(instance.replace(name="other")) == true(name)["instance_fields"]
        json.dumps(fields, allow_nan=False)
    one, other = (
        fields_of(INSTANCES["peak"].replace(size=size)) for size in ([4, 4, 4], [4, 4, 5])
    )
    assert {name for name in one if one[name] != other[name]} >= {"size"}


def test_a_plain_solution_claims_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plain.json"
    path.write_text('{"boundaries": [0, 2, 5]}')
    found = sp.check_result(INSTANCES["pipeline"], path)
    assert (found.valid, found.objective, found.claims) == (True, 9, ())
    with pytest.raises(sp.InputError, match="no bound and no status to prove"):
        sp.check_result(INSTANCES["pipeline"], path, prove=True)


def test_check_believes_the_files_that_solve_writes(tmp_path: Path) -> None:
    instance, result = tmp_path / "five.json", tmp_path / "result.json"
    sp.write(INSTANCES["pipeline"], instance)
    assert run("solve", instance, "-o", result).returncode == 0
    done = run("check", instance, result)
    assert (done.returncode, "false" in done.stdout) == (0, False), done.stdout


def test_check_names_false_claims_and_exits_4(tmp_path: Path) -> None:
    instance, result = tmp_path / "five.json", tmp_path / "result.json"
    sp.write(INSTANCES["pipeline"], instance)
    result.write_text(json.dumps(true("pipeline")))
    done = run("check", instance, result, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["valid"]
    done = run("check", instance, result)
    assert "claims: 10 confirmed" in done.stdout
    result.write_text(json.dumps({**true("pipeline"), "objective": "\x1b[31mzero", "bound": 12}))
    done = run("check", instance, result)
    assert done.returncode == 4
    assert "objective \\x1b[31mzero: false; the solution is worth 9" in done.stdout
    assert "bound 12: false; no lower bound: the solution is worth 9" in done.stdout
    above = "false; the bound 12 is above the objective 9: it is no bound"
    assert above in done.stdout
    done = run("check", instance, result, "--json", "--prove")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["again"][0]["status"] == "OPTIMAL"
    false = {c["claim"] for c in document["claims"] if c["verdict"] == "false"}
    assert false == {"objective", "bound", "proof", "gap", "trace"}
    done = run("check", instance, result, "--capacity", "20")
    assert (done.returncode, "--anyway" in done.stderr) == (2, True)
    result.write_text(json.dumps(true("pipeline")))
    done = run("check", instance, result, "--capacity", "20", "--anyway")
    assert done.returncode == 0
    assert "cluster.memory is (12, 12) there, (20, 20) here" in done.stdout


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"objective": 1234567}, "objective 1,234,567: false"),
        ({"objective": True}, "objective true: false"),
        ({"digest": None, "bound": "a\x1b[31m"}, "bound a\\x1b[31m: false"),
        ({"violations": [None, {}]}, "violations [null, {}]: false"),
        ({"gap": 1e12}, "gap 1000000000000.0: false"),
    ],
)
def test_claims_are_told_as_they_stand_in_the_file(lie: dict[str, Any], said: str) -> None:
    found = sp.check_result(INSTANCES["pipeline"], {**true("pipeline"), **lie})
    assert any(str(claim).startswith(said) for claim in found.false), list(map(str, found.false))


@pytest.mark.parametrize(("option", "lie"), [("objective", "sum"), ("method", "greedy")])
def test_options_that_contradict_the_result_are_false(option: str, lie: str) -> None:
    claims = true("pipeline")
    found = sp.check_result(
        INSTANCES["pipeline"], {**claims, "options": {**claims["options"], option: lie}}
    )
    (claim,) = found.false
    assert claim.name == "options"
    assert claim.detail.startswith(f"{option} is {lie} there, ")


@pytest.mark.parametrize("name", INSTANCES)
def test_solutions_are_taken_and_other_things_refused_by_name(name: str) -> None:
    instance = INSTANCES[name]
    result = sp.solve(instance, time_limit=20)
    found = sp.check_result(instance, result.solution)
    assert (found.objective, found.claims) == (true(name)["objective"], ())
    wrong: Any
    for wrong in (None, 5, [], object(), instance):
        with pytest.raises(sp.InputError, match="result"):
            sp.check_result(instance, wrong)
    for wrong in (None, 5, result):
        with pytest.raises(sp.InputError, match="instance"):
            sp.check_result(wrong, result)


@pytest.mark.parametrize("name", INSTANCES)
def test_an_instance_is_no_result(name: str, tmp_path: Path) -> None:
    file = tmp_path / "instance.json"
    sp.write(INSTANCES[name], file)
    with pytest.raises(sp.InputError, match="holds an instance of"):
        sp.check_result(INSTANCES[name], file)


def test_a_check_prints_what_the_command_says() -> None:
    found = sp.check_result(INSTANCES["pipeline"], {**true("pipeline"), "objective": 7})
    assert "objective 7: false; the solution is worth 9" in str(found)
    assert "objective 7: false" in found._repr_html_()
    assert repr(found) == "<ResultCheck: 'five', 0 violations, 2 false claims>"
    assert "valid: bottleneck 9" in str(sp.check_result(INSTANCES["pipeline"], true("pipeline")))


def test_many_violations_are_a_few_and_a_count(tmp_path: Path) -> None:
    instance, solution = tmp_path / "many.json", tmp_path / "solution.json"
    sp.write(
        sp.PipelinePartition.from_arrays([1] * 1000, devices=500, exclusive=[9] * 1000, capacity=1),
        instance,
    )
    solution.write_text(
        json.dumps({"boundaries": [*range(0, 999, 2), 1000], "devices": [*range(500)]})
    )
    done = run("check", instance, solution)
    assert done.returncode == 4
    lines = done.stdout.splitlines()
    assert "capacity: and 492 more" in lines
    assert (len(lines), max(map(len, lines)) < 200) == (9, True)
    found = json.loads(run("check", instance, solution, "--json").stdout)
    assert len(found["violations"]) == 500


@pytest.mark.parametrize(
    ("name", "program"), [("phases", sp.program), ("groups", sp.group_program)]
)
@pytest.mark.parametrize("claim", [{"objective": -1}, {"status": "OPTIMAL"}, {"bound": 10**9}])
def test_programs_make_no_claims(name: str, program: Any, claim: dict[str, Any]) -> None:
    instance = INSTANCES[name]
    exported = program(instance, sp.check_result(instance, true(name)).solution)
    assert sp.check_result(instance, exported).valid
    with pytest.raises(sp.InputError, match="is claimed by results, not by programs"):
        sp.check_result(instance, {**exported, **claim})


def test_what_no_file_can_hold_is_refused_by_name() -> None:
    with pytest.raises(sp.InputError, match="text that no file can hold"):
        sp.check_result(INSTANCES["peak"], {**true("peak"), "instance": "\ud800"})
    proof = sp.prove(INSTANCES["peak"], 4)
    assert proof is not None
    for bound in (float("nan"), float("inf"), "4", True):
        with pytest.raises(sp.InputError, match="is no number"):
            sp.check_proof(INSTANCES["peak"], {**proof, "bound": bound})
    other = sp.solve(INSTANCES["fit"])
    with pytest.raises(sp.InputError, match="another instance"):
        sp.prove(INSTANCES["peak"], other)


def test_a_true_bound_does_not_make_evidence_true() -> None:
    lie = {**true("peak"), "proof": "log", "evidence": {"rule": "misfit", "steps": [10**30]}}
    found = sp.check_result(INSTANCES["peak"], lie)
    assert verdict(found, "bound") is verdict(found, "status") is Verdict.CONFIRMED
    assert [claim.name for claim in found.false] == ["proof"]
    assert "its evidence does not show it; witness, load does" in found.false[0].detail


def test_what_is_given_in_the_place_of_another_is_told(tmp_path: Path) -> None:
    peak, result, proof = INSTANCES["peak"], tmp_path / "result.json", tmp_path / "proof.json"
    result.write_text(json.dumps(true("peak")))
    proof.write_text(json.dumps(sp.prove(peak, 8)))
    with pytest.raises(sp.InputError, match="is a result, no proof; check it: stagepack check"):
        sp.check_proof(peak, result)
    with pytest.raises(sp.InputError, match=r"holds a proof, no solution; replay it: .*--proof"):
        sp.check_result(peak, proof)
    with pytest.raises(sp.InputError, match="is a result of lmem-packing, not of layer-grouping"):
        sp.check_result(INSTANCES["groups"], result)
    with pytest.raises(sp.InputError, match="holds no proof; write one"):
        sp.check_proof(peak, {"layers": []})
    old = {**json.loads(proof.read_text()), "version": 1}
    with pytest.raises(
        sp.InputError, match=r"version: is 1, not 2, .*; write one: stagepack solve"
    ):
        sp.check_proof(peak, old)
    with pytest.raises(sp.InputError, match=r"digest: .*: size differs; give a proof of this"):
        sp.check_proof(peak.replace(size=[4, 4, 5]), proof)
    proof.write_text("")
    with pytest.raises(sp.InputError, match="is empty; give one that holds something"):
        sp.check_proof(peak, proof)


def test_a_violation_is_printed_once() -> None:
    peak = INSTANCES["peak"]
    solution = dict.fromkeys(true("peak")["solution"]["offsets"], 0)
    found = sp.check_result(peak, {**true("peak"), "solution": {"offsets": solution}})
    assert str(found).count("buffers 0 at 0 and 2 at 0") == 1
    assert "violations []: false; the solution breaks overlap" in str(found)


def test_any_limit_that_is_taken_can_be_halved() -> None:
    said = {**true("schedule"), "proof": "search", "evidence": {}}
    found = sp.check_result(INSTANCES["schedule"], said, prove=True, time_limit=1e-9)
    assert found.valid
    assert found.verified == (not found.unverified) == found.to_dict()["verified"]
