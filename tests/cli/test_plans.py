"""Schedules and phase plans from the command line: solve, check, export, plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagepack.formats.door import read
from stagepack.formats.solutions import read_solution
from stagepack.instances.phases.execution.execute import execute
from tests.cli.shell import run

SCHEDULE = {
    "problem": "pipeline-schedule",
    "version": 1,
    "name": "two",
    "forward": [2, 2],
    "backward": [3, 3],
    "weight": [1, 1],
    "microbatches": 3,
    "memory_forward": 2,
    "memory_backward": -1,
    "memory_weight": -1,
    "limit": 6,
}
PLAN = {
    "problem": "phase-schedule",
    "version": 1,
    "name": "three",
    "input": 8,
    "layers": [{"forward": 6, "output": 4, "variables": 10}] * 3,
    "chip": {"memory": 32, "remote_bandwidth": 2, "host_bandwidth": 2},
    "steps": 4,
    "modes": ["compute"],
}


@pytest.fixture
def schedule(tmp_path: Path) -> Path:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(SCHEDULE))
    return path


@pytest.fixture
def phases(tmp_path: Path) -> Path:
    path = tmp_path / "phases.json"
    path.write_text(json.dumps(PLAN))
    return path


def test_a_schedule_is_solved_exported_and_checked(
    schedule: Path, phases: Path, tmp_path: Path
) -> None:
    order = tmp_path / "order.csv"
    done = run("solve", schedule, "--export", order, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "OPTIMAL"
    ranks = order.read_text().splitlines()
    assert len(ranks) == 2
    full = tmp_path / "full.csv"
    done = run("solve", schedule, "--export", full, "--communication")
    assert done.returncode == 0, done.stderr
    assert "0SEND_F0" in full.read_text()
    assert "WAIT" not in full.read_text()
    assert run("check", schedule, full).returncode == 0
    assert run("solve", schedule, "--export", full, "--waits").returncode == 0
    assert "WAIT_REDUCE_GRAD" in full.read_text()
    done = run("solve", schedule, "--export", full, "--backward")
    assert (done.returncode, "backward: has backward passes" in done.stderr) == (2, True)
    done = run("solve", phases, "--export", tmp_path / "x.json", "--communication")
    assert (done.returncode, "--communication" in done.stderr) == (2, True)
    assert all(rank.split(",").count("") == 0 for rank in ranks)
    assert sorted(ranks[0].split(",")) == sorted(f"0{k}{i}" for k in "FIW" for i in range(3))
    # The order alone says when things run: as early as they can.
    checked = run("check", schedule, order)
    assert checked.returncode == 0, checked.stdout
    instance = read(schedule)
    assert instance.evaluate(read_solution(order, instance)) == result["objective"]


def test_a_plan_is_exported_as_a_program_that_runs(phases: Path, tmp_path: Path) -> None:
    out, program = tmp_path / "result.json", tmp_path / "program.json"
    done = run("solve", phases, "-o", out, "--export", program)
    assert done.returncode == 0, done.stderr
    for words in ("OPTIMAL", "F0", "F1", "Remote traffic"):
        assert words in done.stdout
    instance = read(phases)
    played = execute(instance, json.loads(program.read_text()))
    assert played.errors == []
    assert played.cycles == json.loads(out.read_text())["objective"]
    assert run("check", phases, out).returncode == 0


def test_both_are_drawn(schedule: Path, phases: Path, tmp_path: Path) -> None:
    for source in (schedule, phases):
        out = tmp_path / "result.json"
        assert run("solve", source, "-o", out).returncode == 0
        for name in ("chart.png", "chart.html"):
            done = run("plot", source, out, "-o", tmp_path / name)
            assert done.returncode == 0, done.stderr
            assert (tmp_path / name).stat().st_size > 5000


def test_what_goes_wrong_is_one_line(schedule: Path, phases: Path, tmp_path: Path) -> None:
    tight = tmp_path / "tight.json"
    tight.write_text(json.dumps({**SCHEDULE, "limit": 1}))
    narrow = tmp_path / "narrow.json"
    narrow.write_text(json.dumps({**PLAN, "chip": {"memory": 20, "remote_bandwidth": 2}}))
    cyclic = tmp_path / "cyclic.json"
    cyclic.write_text(json.dumps({**SCHEDULE, "edges": [[0, 1], [1, 0]]}))
    cases: list[tuple[tuple[str | Path, ...], int, str]] = [
        (("solve", tight), 3, "limit"),
        (("solve", narrow), 3, "20"),
        (("solve", cyclic), 2, "edges"),
        (("solve", phases, "--export", tmp_path / "program.csv"), 2, "JSON"),
        (("solve", schedule, "--export", tmp_path / "order.json"), 2, "CSV"),
    ]
    for arguments, code, word in cases:
        done = run(*arguments)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert word in (done.stderr if code == 2 else done.stdout)
        assert "Traceback" not in done.stderr


def test_an_exported_program_is_checked(phases: Path, tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    done = run("solve", phases, "--export", path, "--json")
    assert done.returncode == 0, done.stderr
    done = run("check", phases, path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["violations"] == []
    assert run("check", phases, path).stdout.startswith("valid: ")

    drawn = run("plot", phases, path, "-o", tmp_path / "program.png")
    assert "holds a program, which only check reads, no solution; write one" in drawn.stderr
    program = json.loads(path.read_text())
    body = program["phases"][0]["loop"]["body"]
    del body[0]  # the load of what the first layer reads
    path.write_text(json.dumps(program))
    done = run("check", phases, path)
    assert done.returncode == 4
    assert "program: phase 0" in done.stdout
    assert "is used but not there" in done.stdout

    body[0]["op"] = "finish"
    path.write_text(json.dumps(program))
    done = run("check", phases, path)
    assert done.returncode == 2
    assert "finish" in done.stderr
    del program["phases"][0]["loop"]
    path.write_text(json.dumps(program))
    assert run("check", phases, path).returncode == 2


def test_a_program_of_groups_is_exported_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    done = run("solve", "groups/squeezenet", "--set", "chip=cv184x", "--export", path, "--json")
    assert done.returncode == 0, done.stderr
    checked = run("check", "groups/squeezenet", "--set", "chip=cv184x", path, "--json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["objective"] == json.loads(done.stdout)["objective"]

    program = json.loads(path.read_text())
    del program["instructions"][0]
    path.write_text(json.dumps(program))
    done = run("check", "groups/squeezenet", "--set", "chip=cv184x", path)
    assert done.returncode == 4
    assert "read: group 0, core 0, iteration 1, row 0" in done.stdout
    assert "where nothing is" in done.stdout


def test_a_graph_is_exported_for_viewers_of_graphs(tmp_path: Path) -> None:
    for name, begin in (("cut.dot", 'digraph "'), ("cut.graphml", "<?xml ")):
        path = tmp_path / name
        done = run("solve", "graph/alexnet", "-m", "equal-work", "--export", path)
        assert done.returncode == 0, done.stderr
        assert path.read_text().startswith(begin)
    done = run("solve", "graph/alexnet", "--export", tmp_path / "cut.json")
    assert done.returncode == 2
    assert ".graphml" in done.stderr


def test_solutions_have_pages_and_other_forms_too(tmp_path: Path) -> None:
    name = "packing/random/planted"
    answer, page, table = (tmp_path / end for end in ("answer.json", "page.html", "offsets.csv"))
    assert run("solve", name, "-o", answer).returncode == 0
    done = run("show", name, answer, "--html", page, "--export", table)
    assert done.returncode == 0, done.stderr
    assert "<h3>solution</h3>" in page.read_text()
    assert table.read_text().startswith("id,")
    assert run("show", name, "--html", page).stderr.startswith("error: --html: needs a solution")
    document = json.loads(answer.read_text())
    document["solution"]["offsets"] = dict.fromkeys(document["solution"]["offsets"], 0)
    answer.write_text(json.dumps(document))
    wrong = run("show", name, answer, "--export", table)
    assert wrong.returncode == 2
    assert "SOLUTION: breaks" in wrong.stderr
