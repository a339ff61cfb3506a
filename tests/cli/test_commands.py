"""The command line as a person or a script meets it: words, JSON, exit codes, interrupts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.cli.compare import chosen
from stagepack.kinds import KINDS
from tests.cli.shell import CHAIN, ROOT, run


def changed(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({**CHAIN, **changes}))
    return path


def test_solve_speaks_json(chain: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    done = run("solve", chain, "--json", "-o", out)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(out.read_text())
    wanted = {
        "status": "OPTIMAL",
        "termination": "PROVED",
        "objective": 9,
        "bound": 9,
        "gap": 0.0,
        "violations": [],
        "reason": None,
    }
    assert {key: document[key] for key in wanted} == wanted
    assert document["solution"] == {"boundaries": [0, 3, 5], "devices": [0, 1]}
    assert document["command"].startswith("stagepack solve")
    for key in ("bound_source", "method", "runtime", "setup_time", "options", "versions"):
        assert key in document
    assert done.stderr == ""


def test_solve_speaks_to_people(chain: Path) -> None:
    done = run("solve", chain)
    assert done.returncode == 0
    for word in ("OPTIMAL by auto", "five: ", "9 cycles, bound 9 cycles", "device 0"):
        assert word in done.stdout


def test_check_accepts_what_solve_wrote_and_names_violations(chain: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    run("solve", chain, "-o", out)
    assert run("check", chain, out).returncode == 0
    bad = tmp_path / "bad.json"
    bad.write_text('{"boundaries": [0, 1, 5]}')
    done = run("check", chain, bad, "--json")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["valid"] is False
    assert [violation["rule"] for violation in document["violations"]] == ["capacity"]


def test_cuts_can_be_fixed_and_forbidden(chain: Path) -> None:
    document = json.loads(run("solve", chain, "--forbid-cut", "2", "--json").stdout)
    assert document["solution"]["boundaries"] == [0, 3, 5]
    document = json.loads(run("solve", chain, "--fix-cut", "3", "--json").stdout)
    assert document["solution"]["boundaries"] == [0, 3, 5]
    done = run("solve", chain, "--fix-cut", "9")
    assert done.returncode == 2
    assert "--fix-cut" in done.stderr


def test_infeasible_is_exit_3_with_a_reason(tmp_path: Path) -> None:
    path = changed(tmp_path, cluster={"devices": [{"memory": 9}, {"memory": 9}]})
    done = run("solve", path)
    assert done.returncode == 3
    assert "INFEASIBLE" in done.stdout
    assert "3 bytes more" in done.stdout
    assert json.loads(run("solve", path, "--json").stdout)["solution"] is None


def test_a_baseline_that_finds_nothing_is_exit_1(tmp_path: Path) -> None:
    path = changed(tmp_path, cluster={"devices": [{"memory": 9}, {"memory": 9}]})
    done = run("solve", path, "-m", "greedy", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "UNKNOWN"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, ["version", "2"]),
        ({"problem": "knapsack"}, ["knapsack"]),
        ({"layers": {"forward": []}}, ["layers"]),
        ({"layers": {"forward": [1, -5, 3]}}, ["forward"]),
        ({"colour": "red"}, ["colour"]),
        ({"cluster": {"devices": []}}, ["cluster.devices"]),
        ({"cluster": {"devices": [{"memory": -1}]}}, ["memory"]),
        ({"objective": "speed"}, ["objective"]),
    ],
)
def test_bad_files_are_one_line_and_exit_2(
    tmp_path: Path, change: dict[str, Any], words: list[str]
) -> None:
    path = changed(tmp_path, **change)
    done = run("solve", path, "--json", "-o", tmp_path / "out.json")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    for word in [str(path), *words]:
        assert word in line
    assert ";" in line, "a remedy"
    assert not (tmp_path / "out.json").exists()


def test_more_ways_to_go_wrong(chain: Path, tmp_path: Path) -> None:
    truncated = tmp_path / "truncated.json"
    truncated.write_text(json.dumps(CHAIN)[:60])
    nan = tmp_path / "nan.json"
    nan.write_text(json.dumps(CHAIN).replace("[1, 5", "[NaN, 5"))
    other = tmp_path / "other.json"
    other.write_text('{"boundaries": [0, 3, 9], "devices": [0, 1]}')
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(
        '{"digest": "0123456789abcdef", "solution": {"boundaries": [0, 3, 5], "devices": [0, 1]}}'
    )
    fitting = tmp_path / "fitting.json"
    fitting.write_text('{"boundaries": [0, 2, 5]}')
    result = tmp_path / "result.json"
    result.write_text('{"problem": "pipeline-partition", "status": "UNKNOWN", "solution": null}')
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("solve", tmp_path / "missing.json"), "missing.json"),
        (("solve", tmp_path), str(tmp_path)),
        (("solve", truncated), "truncated.json"),
        (("solve", nan), "nan.json"),
        (("solve", chain, "--devices", "7"), "7 devices for 5 layers"),
        (("solve", chain, "-m", "dq"), "did you mean dp?"),
        (("solve", "bert-large"), "pipeline/bert-large or packing/activations/bert-large"),
        (("plan", "bert-large", "--cluster", "none"), "a FILE.json of your own"),
        (("solve", "layer-grouping"), "compare layer-grouping takes its suite"),
        (("compare", "phases", "--kind", "packing"), "another kind than phases"),
        (("solve", chain, "-m", "cp-sat", "-e", "highs"), "engine"),
        (("solve", chain, "-m", "milp-interval", "-e", "pyomo:nonsense"), "nonsense"),
        (("solve", chain, "-t", "-1"), "error: -t: -1; give seconds, or 0 for no limit"),
        (("check", chain, "-t", "1e-10"), "-t: 1e-10; give seconds, at least 1e-09, or 0 for no"),
        (("check", chain, other, "--time-limit", "nan"), "error: -t: nan"),
        (("solve", chain, "--threads", "0"), "error: --threads: 0"),
        (("solve", chain, "--warm-start", "best"), "error: --warm-start: unknown"),
        (("compare", chain, "--seed", "-1"), "error: --seed: is -1"),
        (("solve", chain, "--set", "devices"), "--set"),
        (("solve", chain, "--nonsense"), "--nonsense"),
        (("solve", chain, "-o", "/nonexistent/out.json"), "/nonexistent/out.json"),
        (("solve", "pipeline/bert-larg"), "pipeline/bert-large"),
        (("solve", chain, "--kind", "lmem-packing"), "lmem-packing"),
        (("check", chain, other), "boundaries"),
        (("check", chain, elsewhere), "digest"),
        (("solve", chain, "--warm-start", elsewhere), "digest"),
        (("solve", "pipeline/bert-base", "--format", "native"), "--format"),
        (("solve", chain, "--capacity", "much"), "16GiB"),
        (("solve", chain, "--capacity", "1.5"), "16GiB"),
        (("solve", chain, "--target", "nan"), "target"),
        (("compare", chain, "--html", "/dev/null/report"), "/dev/null/report"),
        (("check", chain, chain), "chain.json: holds an instance of pipeline-partition, no"),
        (("show", chain, chain), "chain.json: holds an instance of pipeline-partition, no"),
        (("plot", chain, chain, "-o", "a.png"), "holds an instance of pipeline-partition, no"),
        (("plot", chain, fitting, "-o", "a.txt"), "error: a.txt: --output: is no name of"),
        (("show", result), "result.json: holds a result, no instance"),
        (("schema",), "KIND: is missing; choose one of pipeline-partition, lmem-packing"),
        (("list", "packing/rand"), "or packing/random/"),
        (("show", chain, "--measured", "x.csv"), "solution"),
        (("schema", "nonsense"), "nonsense"),
        (("convert", chain, "/nonexistent/out.json"), "/nonexistent/out.json"),
        (("compare", "--objective", "sum"), "suite"),
        (("compare", chain, "--all"), "--all: runs the whole suite"),
    ]
    for arguments, word in cases:
        done = run(*arguments)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
        assert word in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_show_list_methods_schema_and_convert(chain: Path, tmp_path: Path) -> None:
    shown = json.loads(run("show", chain, "--json").stdout)["instance"]
    assert (shown["layers"], shown["devices"], shown["cycles"]) == (5, 2, 15)
    assert shown["compute_bound"] == 8
    names = [entry["name"] for entry in json.loads(run("list", "--json").stdout)]
    assert "pipeline/bert-large" in names
    methods = {m["name"]: m for m in json.loads(run("methods", chain, "--json").stdout)}
    assert methods["dp"]["available"]
    assert json.loads(run("schema", "pipeline").stdout)
    target = tmp_path / "again.json.gz"
    assert run("convert", chain, target).returncode == 0
    graph = tmp_path / "graph.json"
    assert run("convert", "graph/alexnet", graph, "--to", "dnn-partitioning").returncode == 0
    assert "fpgaLatency" in json.loads(graph.read_text())["nodes"][0]
    assert (
        "--to: pipedream files can only" in run("convert", chain, graph, "--to", "pipedream").stderr
    )
    first, again = (json.loads(run("solve", p, "--json").stdout) for p in (chain, target))
    assert first["digest"] == again["digest"]


def test_a_solution_becomes_the_next_problem(tmp_path: Path) -> None:
    graph = sp.GraphPartition.from_edges(
        4, [(0, 1), (1, 2), (2, 3)], time=[2, 3, 4, 5], traffic=[1] * 4, accelerators=2
    )
    source, result, made = (tmp_path / f"{name}.json" for name in ("graph", "result", "made"))
    sp.write(graph, source)
    assert run("solve", source, "-o", result).returncode == 0
    answer = sp.read_solution(result, graph)
    assert isinstance(answer, sp.GraphSolution)
    solved = ("--solution", result)
    done = run("convert", source, made, *solved, "--as", "pipeline", "--json")
    assert json.loads(done.stdout)["digest"] == sp.chain(graph, answer).digest
    assert run("convert", source, made, *solved, "--as", "pipeline-schedule").returncode == 0
    assert sp.read(made).digest == sp.PipelineSchedule.from_graph(graph, answer).digest
    drawing = tmp_path / "graph.graphml"
    assert run("convert", source, drawing, *solved).returncode == 0
    assert drawing.read_text() == sp.partition_graphml(graph, answer)
    for wrong, remedy in (
        (("--as", "schedule"), "needs a solution"),
        (solved, "choose pipeline-partition or pipeline-schedule"),
        ((*solved, "--as", "phases"), "phases: not made of a graph-partition"),
    ):
        refused = run("convert", source, made, *wrong)
        assert refused.returncode == 2
        assert remedy in refused.stderr


def test_the_backward_pass_of_stages_is_split_or_not(tmp_path: Path) -> None:
    chain = sp.PipelinePartition.from_arrays(
        [2, 3, 4], backward=[4, 6, 8], devices=2, training=True, microbatches=3
    )
    source, result, made = (tmp_path / f"{name}.json" for name in ("chain", "cut", "made"))
    sp.write(chain, source)
    result.write_text('{"boundaries": [0, 2, 3]}')
    solved = ("convert", source, made, "--solution", result, "--as", "schedule")
    for words, backward, weight in ((("--no-split",), [10, 8], None), ((), [5, 4], [5, 4])):
        done = run(*solved, *words)
        assert done.returncode == 0
        assert ("split into B and W; --no-split keeps it whole" in done.stdout) is (not words)
        schedule = sp.read(made, kind="pipeline-schedule")
        assert isinstance(schedule, sp.PipelineSchedule)
        assert schedule.backward is not None
        assert schedule.backward.tolist() == backward
        assert (None if schedule.weight is None else schedule.weight.tolist()) == weight
    refused = run("convert", source, made, "--no-split")
    assert refused.returncode == 2
    assert "--no-split: is for stages that become a problem" in refused.stderr


def test_fractions_are_counted_in_as_many_cycles_as_asked_for(tmp_path: Path) -> None:
    graph = sp.GraphPartition.from_edges(
        2, [(0, 1)], time=[0.3, 0.4], traffic=[0.1, 0], accelerators=2
    )
    source, result, made = (tmp_path / f"{name}.json" for name in ("graph", "cut", "made"))
    sp.write(graph, source)
    result.write_text('{"assignment": {"0": 0, "1": 1}}')
    solved = ("convert", source, made, "--solution", result, "--as")
    done = run(*solved, "schedule")
    assert "233 % longer in whole cycles" in done.stderr
    assert "--cycles 1000" in done.stderr
    done = run(*solved, "schedule", "--cycles", "1000")
    assert done.stderr == ""
    schedule = sp.read(made, kind="pipeline-schedule")
    assert isinstance(schedule, sp.PipelineSchedule)
    assert schedule.forward.tolist() == [300, 400]
    assert run(*solved, "pipeline", "--cycles", "10").returncode == 0
    assert (
        sp.read(made).digest == sp.chain(graph, sp.read_solution(result, graph), cycles=10).digest
    )
    for wrong in (
        (*solved, "schedule", "--cycles", "0"),
        ("convert", source, made, "--cycles", "9"),
    ):
        refused = run(*wrong)
        assert refused.returncode == 2
        assert "cycles" in refused.stderr


def test_the_beginning_of_names_lists_what_is_below(chain: Path) -> None:
    def listed(name: str) -> list[str]:
        return [entry["name"] for entry in json.loads(run("list", name, "--json").stdout)]

    below = listed("packing/random")
    assert below == listed("lmem-packing/random/")
    assert {"packing/random/planted", "packing/random/powerlaw"} < set(below)
    assert set(below) < set(listed("packing"))
    assert listed("packing") == listed("lmem-packing")
    assert "all of packing: stagepack list packing" in run("list", "packing/random").stdout
    assert "all of" not in run("list", "packing").stdout


def test_show_estimates_a_solution_against_measured_values(chain: Path, tmp_path: Path) -> None:
    solution = tmp_path / "solution.json"
    solution.write_text('{"boundaries": [0, 2, 5]}')
    measured = tmp_path / "measured.csv"
    measured.write_text("stage,compute,memory\n0,7,9\n1,9,12\n")
    done = run("show", chain, solution, "--measured", measured, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["compute"] for row in document["estimate"]["stages"]] == [6, 9]
    assert {row["figure"] for row in document["against"]} >= {"compute", "memory"}
    for width in (80, 120):
        text = run("show", chain, solution, "--measured", measured, columns=width)
        assert text.returncode == 0, text.stderr
        assert max(map(len, text.stdout.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_every_screen_fits_its_terminal(chain: Path, width: int, tmp_path: Path) -> None:
    screens: list[tuple[str | Path, ...]] = [
        ("list",),
        ("methods",),
        ("methods", chain),
        ("show", chain),
        ("solve", chain),
        ("compare", chain, "-m", "dp", "-m", "greedy", "-j", "0", "--no-html"),
        ("solve", "--help"),
    ]
    for screen in screens:
        done = run(*screen, columns=width)
        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= width, screen


def test_compare_writes_table_csv_json_and_report(chain: Path, tmp_path: Path) -> None:
    csv, out, html = tmp_path / "t.csv", tmp_path / "t.json", tmp_path / "report"
    arguments: list[str | Path] = [
        "-m",
        "dp",
        "-m",
        "greedy",
        "-t",
        "5",
        "--csv",
        csv,
        "-o",
        out,
        "--html",
        html,
    ]
    done = run("compare", chain, *arguments)
    assert done.returncode == 0, done.stderr
    assert "OPTIMAL" in done.stdout
    assert str(html / "index.html") in done.stdout.replace("\n", "")
    rows = json.loads(out.read_text())["rows"]
    assert [(row["method"], row["objective"]) for row in rows] == [("dp", 9), ("greedy", 9)]
    assert len(csv.read_text().splitlines()) == 3
    page = (html / "index.html").read_text()
    assert "five" in page


@pytest.mark.parametrize("times", [1, 4])
def test_ctrl_c_prints_the_incumbent_with_its_bound(times: int, tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(2)
    hard = {
        **CHAIN,
        "layers": {"forward": rng.integers(10**6, 10**8, 400).tolist()},
        "cluster": {"devices": [{"speed": s / 100} for s in rng.integers(60, 140, 12).tolist()]},
        "free_order": True,
    }
    path = tmp_path / "hard.json"
    path.write_text(json.dumps(hard))
    limits = ["-m", "cp-sat", "-t", "300", "-o", str(tmp_path / "answer.json")]
    process = subprocess.Popen(
        [sys.executable, "-m", "stagepack", "-v", "solve", str(path), *limits],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "(greedy)" in line:  # an incumbent is in hand, CP-SAT begins
            break
    time.sleep(1.5)
    for _ in range(times):  # the others meet the solve, what is written, or the end
        process.send_signal(signal.SIGINT)
        time.sleep(0.55 * (times > 1))
    out, told = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in told) == (6, False), told
    assert json.loads((tmp_path / "answer.json").read_text())["status"] == "FEASIBLE"
    assert "interrupted" in out
    assert "objective" in out
    assert "bound" in out


def test_sizes_are_understood(chain: Path) -> None:
    for text, reason in (("9B", "9 instead"), ("0.009kB", ""), ("16GiB", "")):
        done = run("solve", chain, "--capacity", text, "--json")
        assert done.returncode == (0 if text == "16GiB" else 3), reason


def test_devices_may_have_a_capacity_each(chain: Path) -> None:
    for option in ("--capacity", "--set"):
        said = "16GiB,8GiB,1e9" if option == "--capacity" else "capacity=16GiB,8GiB,1e9"
        document = json.loads(run("solve", chain, "--devices", "3", option, said, "--json").stdout)
        assert document["status"] == "OPTIMAL"
    done = run("show", chain, "--devices", "3", "--capacity", "16GiB,8GiB")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "capacity: 2 capacities for 3 devices" in done.stderr
    done = run("solve", "packing/random/planted", "--capacity", "1KiB,2KiB")
    assert done.returncode == 2
    assert "--capacity: '1KiB,2KiB' will not do as capacity" in done.stderr


def test_options_that_would_save_are_told(tmp_path: Path) -> None:
    path = tmp_path / "unlike.json"
    devices = [{"speed": 1}, {"speed": 4}, {"speed": 2}]
    layers = {"forward": [90, 10, 10, 10, 30, 20, 60, 60]}
    document = {"problem": "pipeline-partition", "version": 1, "layers": layers}
    path.write_text(json.dumps({**document, "cluster": {"devices": devices}}))
    told = " ".join(run("solve", path).stdout.split())
    assert "With --free-order 45, 50.0 % less With --fewer-stages 57.500, 36.1 % less" in told
    assert "With --stages-per-device 2 --fewer-stages 42.500, 52.8 % less" in told
    assert "With --" not in run("solve", path, "--free-order", "--fewer-stages").stdout


def test_compare_takes_a_file_of_several_instances(tmp_path: Path, data_dir: Path) -> None:
    cases = data_dir / "auto_pipeline" / "partition_cases.json"
    done = run("compare", cases, "-m", "dp", "-j", "0", "--no-html", "--json")
    assert done.returncode == 0, done.stderr
    values = {row["instance"]: row["objective"] for row in json.loads(done.stdout)["rows"]}
    assert values == {"even2": 30000, "shared2": 40000, "memory2": 50000}


def test_compare_says_at_once_what_will_run(chain: Path) -> None:
    done = run("compare", chain, chain, "-m", "greedy", "-t", "2", "-j", "0", "--no-html")
    assert done.stderr.splitlines()[0] == "comparing methods on 2 instances, at most 2 s each"
    assert "0 of 2 instances decided with proof, 2 solved without one" in done.stdout


def test_compare_without_instances_is_a_tour() -> None:
    instances, methods = chosen((), None, {}, whole=False)
    assert isinstance(methods, dict)
    assert list(methods) == list(instances)
    assert {instance.kind for instance in instances.values()} == set(KINDS)
    assert chosen((), ["auto"], {}, whole=False)[1] == ["auto"]
    whole, unasked = chosen((), None, {}, whole=True)
    assert len(whole) > 50
    assert unasked is None


def test_compare_takes_the_suite_of_a_kind_by_its_name() -> None:
    for name in ("phases", "phase-schedule"):
        done = run("compare", name, "-m", "keep-all", "-t", "1", "-j", "0", "--no-html", "--json")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        names = {problem.name for problem in sp.suite() if problem.kind == "phase-schedule"}
        assert {row["instance"] for row in rows} == names


def test_a_full_or_closed_stdout_is_one_line(chain: Path) -> None:
    command = f"{sys.executable} -m stagepack schema packing"
    for redirection, code in ((">/dev/full", 2), (">&-", 0), ("| head -1", 0)):
        done = subprocess.run(
            ["sh", "-c", f"{command} {redirection}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert "internal" not in done.stderr


def test_version_and_help() -> None:
    assert run("--version").stdout.strip() == sp.__version__
    assert "compare" in run("--help").stdout
    assert run().returncode == 0


def test_an_option_of_another_command_is_told(chain: Path) -> None:
    done = run("solve", chain, "--html", "pages")
    assert done.returncode == 2
    assert "No such option: --html" in done.stderr
    assert "stagepack plan, compare, results and show take it" in done.stderr
    assert "; stagepack compare takes it" in run("solve", chain, "--dask", "tcp://a:1").stderr
    assert "; say --set batch=VALUE" in run("solve", chain, "--batch", "4").stderr
    assert run("solve", chain, "--seed").stderr == "error: Option '--seed' requires an argument.\n"


def test_capacities_of_another_number_are_told_before_what_devices_they_are(tmp_path: Path) -> None:
    devices = (sp.Device(memory=5), sp.Device(memory=9))
    unlike = sp.PipelinePartition.from_arrays([1, 2, 3], cluster=sp.Cluster(devices=devices))
    sp.write(unlike, tmp_path / "unlike.json")
    for capacity, words in (
        ("1GB,2GB", "capacity: 2 capacities for 3 devices"),
        ("1GB", "devices: the 2 devices of the cluster differ: 3 of which kind?"),
    ):
        done = run("solve", tmp_path / "unlike.json", "--devices", "3", "--capacity", capacity)
        assert (done.returncode, words in done.stderr) == (2, True)


def test_local_memory_of_nothing_is_refused_and_parts_of_rows_are_numbers() -> None:
    done = run("solve", "groups/squeezenet", "--capacity", "0")
    assert done.returncode == 2
    assert "--capacity: '0' will not do" in done.stderr
    assert "bytes of local memory in every lane" in run("list", "groups/squeezenet").stdout
    done = run("solve", "groups/squeezenet", "--set", "overlap_limit=-1")
    assert "give a number from 0 to 2,147,483,648 or half or none" in done.stderr
    assert run("solve", "groups/squeezenet", "--set", "overlap_limit=0.25").returncode == 0


@pytest.mark.parametrize(("name", "tool"), [("offsets.h", "c"), ("net.TFLITE", "tflm")])
def test_files_of_another_tool_are_never_filled_with_something_else(
    tmp_path: Path, name: str, tool: str
) -> None:
    buffers, out = tmp_path / "net.csv", tmp_path / name
    sp.write(sp.LmemPacking.from_arrays([3, 1], [0, 0], [1, 2]), buffers)
    done = run("solve", buffers, "--export", out)
    assert done.returncode == 2
    assert f"name it: --as {tool}" in done.stderr
    assert not done.stdout, "refused before it is solved"
    assert not out.exists()


def test_stages_are_written_for_a_tool(tmp_path: Path) -> None:
    chain = tmp_path / "layers.json"
    sp.write(sp.PipelinePartition.from_arrays([3, 1, 1, 1, 2, 2], devices=3), chain)
    out, result = tmp_path / "layout.txt", tmp_path / "result.json"
    done = run("solve", chain, "--export", out, "--as", "megatron:ranks=3", "-o", result)
    assert done.returncode == 0, done.stderr
    assert out.read_text() == "Et|t*3|ttL\n"
    done = run("convert", chain, out, "--solution", result, "--as", "vllm")
    assert done.returncode == 0, done.stderr
    assert out.read_text() == "VLLM_PP_LAYER_PARTITION=1,3,2\n"
    for words, told in (
        (("--export", out), "name it: --as megatron, "),
        (("--as", "vllm"), "--as: needs a file; name it: --export FILE"),
        (("--export", out, "--as", "megatron:ranks"), "'ranks' is not KEY=VALUE"),
        (("--export", out, "--as", "megatron:rank=3"), "has no option 'rank'; did you mean ranks"),
        (("--export", out, "--as", "megatrom"), "did you mean megatron"),
        (("--export", out, "--as", "megatron:ranks=2"), "3 stages on 2 ranks"),
        (("--export", out, "--as", "vllm:letters=Et*4m"), "layers of multi-token prediction"),
    ):
        done = run("solve", chain, *words)
        assert done.returncode == 2
        assert not done.stdout, "refused before it is solved"
        assert told in done.stderr


def test_solve_moves_few_bytes_from_a_previous_cut(tmp_path: Path) -> None:
    names = [{"name": name} for name in "abc"]
    old, out = tmp_path / "old.json", tmp_path / "new.json"
    three = changed(tmp_path, cluster={"devices": names})
    assert run("solve", three, "-o", old).returncode == 0
    assert json.loads(old.read_text())["device_names"] == ["a", "b", "c"]
    two = changed(tmp_path, cluster={"devices": [names[0], names[2]]})
    done = run("solve", two, "--previous", old, "--tolerance", "20%", "-o", out)
    assert done.returncode == 0, done.stderr
    for words in ("Best bottleneck  9 (OPTIMAL)", "Allowed          10, for", "8 bytes, bound"):
        assert words in done.stdout
    document = json.loads(out.read_text())
    assert (document["objective_name"], document["objective"]) == ("moves", 8)
    assert (document["best"]["objective"], document["best"]["status"]) == (9, "OPTIMAL")
    asked = ("--previous", old, "--objective", "moves", "--set", "limit=10")
    checked = run("check", two, out, *asked)
    assert "valid: moves 8 bytes" in checked.stdout, checked.stdout + checked.stderr
    assert "bound and status not verified" in checked.stdout
    assert checked.returncode == 5
    room = ("solve", ROOT / "examples/kv-cache.json")
    assert run(*room, "-o", out).returncode == 0
    told = run(*room, "--previous", out, "--tolerance", "50%").stdout
    assert "Allowed        80,719 tokens, for which the fewest bytes move" in told
    for said, words in (
        (("--tolerance", "1%"), "give --previous FILE"),
        (("--previous", old, "--tolerance", "much"), "give a share: 5% or 0.05"),
        (("--previous", tmp_path / "none.json"), "none.json"),
        ((*asked, "-m", "greedy"), "it knows nothing of a previous cut; use dp or cp-sat"),
    ):
        refused = run("solve", two, *said)
        assert (refused.returncode, words in refused.stderr) == (2, True), refused.stderr
