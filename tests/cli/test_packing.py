"""The command line on packings: what it says, what it writes, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import CHAIN, run

BUFFERS = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"
OFFSETS = {"b1": 8, "b2": 8, "b3": 4, "b4": 4, "b5": 0}


@pytest.fixture
def buffers(tmp_path: Path) -> Path:
    path = tmp_path / "input.12.csv"
    path.write_text(BUFFERS)
    return path


@pytest.fixture
def solution(tmp_path: Path) -> Path:
    path = tmp_path / "solution.json"
    path.write_text(json.dumps({"offsets": OFFSETS}))
    return path


@pytest.mark.parametrize("width", [80, 120])
def test_show(buffers: Path, solution: Path, width: int) -> None:
    done = run("show", buffers, solution, columns=width)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= width
    for words in ("Load bound", "12 bytes", "Unused at the peak", "b5", "[0, 21)"):
        assert words in done.stdout


def test_show_speaks_json(buffers: Path, solution: Path) -> None:
    document = json.loads(run("show", buffers, solution, "--json").stdout)
    assert document["instance"]["load_bound"] == 12
    assert document["solution"]["peak"] == 12
    assert document["solution"]["highest"][0]["id"] in ("b1", "b2")


def test_check_names_violations(buffers: Path, tmp_path: Path, solution: Path) -> None:
    done = run("check", buffers, solution)
    assert (done.returncode, done.stdout) == (0, "valid: fit 12 bytes\n")
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"offsets": {**OFFSETS, "b1": 9, "b3": 2}}))
    done = run("check", buffers, bad)
    assert done.returncode == 4
    assert "capacity: buffer b1 ends at 13, 1 bytes beyond the capacity of 12" in done.stdout
    assert "overlap: buffers b3 at 2 and b5 at 0 share [2, 4)" in done.stdout
    rules = json.loads(run("check", buffers, bad, "--json").stdout)["violations"]
    assert {violation["rule"] for violation in rules} == {"capacity", "overlap"}


@pytest.mark.parametrize("end", ["png", "svg", "html"])
def test_plot(buffers: Path, solution: Path, tmp_path: Path, end: str) -> None:
    target = tmp_path / f"map.{end}"
    done = run("plot", buffers, solution, "-o", target, "--scale", "sections")
    assert done.returncode == 0, done.stderr
    assert target.stat().st_size > 5000


def test_plot_of_a_pipeline(tmp_path: Path) -> None:
    chain, cut = tmp_path / "chain.json", tmp_path / "cut.json"
    chain.write_text(json.dumps(CHAIN))
    cut.write_text('{"boundaries": [0, 2, 5]}')
    for name in ("map.png", "map.html"):
        done = run("plot", chain, cut, "-o", tmp_path / name, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["written"] == str(tmp_path / name)
    done = run("solve", chain, "--offsets", tmp_path / "o.csv")
    assert done.returncode == 2
    assert "--export" in done.stderr


def test_what_goes_wrong_is_one_line(buffers: Path, solution: Path, tmp_path: Path) -> None:
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("plot", buffers, solution, "-o", tmp_path / "map.txt"), ".svg"),
        (("plot", buffers, solution, "-o", tmp_path / "map.png", "--scale", "x"), "scale"),
        (("plot", buffers, solution, "-o", "/nonexistent/map.png"), "/nonexistent/map.png"),
        (("show", buffers, solution, "--measured", "x.csv"), "--measured"),
        (("compare", "--kind", "nonsense"), "--kind"),
    ]
    for arguments, word in cases:
        done = run(*arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert word in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_solve(buffers: Path, tmp_path: Path) -> None:
    out, offsets = tmp_path / "result.json", tmp_path / "offsets.csv"
    done = run("solve", buffers, "-o", out, "--offsets", offsets)
    assert done.returncode == 0, done.stderr
    head = "input: 5 buffers alive in [lower, upper), capacity 12 bytes, fit"
    assert done.stdout.splitlines()[0] == head
    for words in ("OPTIMAL", "objective (fit) 12 bytes"):
        assert words in done.stdout
    assert offsets.read_text().splitlines()[0] == "id,lower,upper,size,offset"
    assert run("check", buffers, out).returncode == 0
    done = run("solve", buffers, "--capacity", "11", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "INFEASIBLE"


def test_compare_both_kinds(buffers: Path, tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    chain.write_text(json.dumps(CHAIN))
    done = run("compare", buffers, chain, "-m", "auto", "-m", "dp", "-j", "0", "--no-html")
    assert done.returncode == 0, done.stderr
    titles = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert "lmem-packing" in titles
    assert "pipeline-partition" in titles
    assert "n/a" not in done.stdout  # dp is asked of the pipeline only
    done = run("compare", buffers, chain, "-m", "nonsense", "--no-html")
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_an_old_placement_is_kept_after_a_change(
    buffers: Path, solution: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.16.csv"
    changed.write_text(BUFFERS.replace("b4,9,21,4", "b4,9,21,8") + "b6,0,3,4\n")
    done = run(
        "solve",
        changed,
        "--previous",
        solution,
        "--objective",
        "moves",
        "--capacity",
        "16",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    offsets = json.loads(done.stdout)["solution"]["offsets"]
    assert offsets == {**OFFSETS, "b6": 12}
    other = run("solve", changed, "--previous", tmp_path / "none.json")
    assert (other.returncode, "none.json: no such file" in other.stderr) == (2, True)
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"offsets": {"x": 3}}')
    wrong = run("solve", changed, "--previous", foreign)
    assert (wrong.returncode, "names no buffer" in wrong.stderr) == (2, True)


def test_a_peak_beyond_the_capacity_is_told(buffers: Path) -> None:
    done = run("solve", buffers, "--objective", "peak", "--capacity", "10")
    assert done.returncode == 0
    assert "exceeds the capacity of 10" in " ".join(done.stdout.split())
