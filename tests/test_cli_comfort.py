"""What makes the command line pleasant: help, completion, pictures, signs of life, silence."""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import stagepack as sp
from stagepack.cli import app
from stagepack.cli.examples import EXAMPLES
from stagepack.cli.live import Cells, Search, elapsed
from stagepack.compare.comparison import Cell

COMMANDS = sorted(EXAMPLES)
CHAIN = "pipeline/random/bert-like"


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=env
    )


def watched(*arguments: str) -> tuple[str, str]:
    """Run a command with stderr on a terminal; return its stdout and what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "stagepack", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    out, _ = process.communicate()
    return out.decode(), seen.decode()


# ---------------------------------------------------------------------- help


def test_every_command_has_two_examples() -> None:
    names = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert names == set(EXAMPLES)
    assert all(len(lines) >= 2 for lines in EXAMPLES.values())


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_and_shows_examples_whole(command: str, width: int) -> None:
    done = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": str(width)})
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= width
    whole = [line.strip() for line in lines]
    assert all(f"stagepack {example}" in whole for example in EXAMPLES[command])


def test_options_are_grouped() -> None:
    done = CliRunner().invoke(app, ["solve", "--help"], env={"COLUMNS": "100"})
    titles = [line for line in done.output.splitlines() if line.startswith("╭─")]
    assert len(titles) >= 7
    own = done.output.split("─ Options ─")[1].split("╰")[0]
    assert "--help" in own
    assert "--method" not in own


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_parse(command: str) -> None:
    group = typer.main.get_command(app)
    for line in EXAMPLES[command]:
        words = line.split(" > ")[0].split()
        assert words[0] == command
        group.commands[command].make_context(command, words[1:])  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- completion


def completed(line: str) -> list[str]:
    words = line.split(" ")
    env = {
        "_STAGEPACK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = python("-m", "stagepack", env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("stagepack sol", {"solve"}, {"show"}),
        ("stagepack solve pipeline/b", {"pipeline/bert-base"}, {"packing/random/planted"}),
        ("stagepack solve pipeline/bert-base -m ", {"bisect", "auto"}, {"first-fit-size"}),
        ("stagepack solve a.json --kind packing --objective ", {"peak", "fit"}, {"makespan"}),
        ("stagepack solve a.json --engine ", {"cp-sat", "highs", "pyomo:highs"}, set()),
        ("stagepack compare --kind ", {"packing", "lmem-packing", "phases"}, set()),
        ("stagepack solve a.json --cluster ipu", {"ipu-pod8"}, set()),
        ("stagepack solve ./a", set(), {"pipeline/bert-base"}),  # files are the shell's
    ],
)
def test_the_shell_is_offered_what_fits(line: str, some: set[str], none: set[str]) -> None:
    offered = set(completed(line))
    assert some <= offered
    assert not none & offered


def test_completion_loads_no_solver() -> None:
    code = """
        import sys, types
        from stagepack.cli import completion
        context = types.SimpleNamespace(params={}, args=[])
        assert completion.methods(context, "") and completion.instances("")
        assert completion.kinds("") and completion.engines("")
        assert completion.objectives(context, "")
        heavy = {"numba", "ortools", "highspy", "pyomo", "scipy", "matplotlib", "pandas"}
        print(sorted(heavy & set(sys.modules)))
    """
    done = python("-c", "\n".join(line.strip() for line in code.splitlines()))
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_completion_can_be_shown() -> None:
    done = python("-m", "stagepack", "--show-completion", "bash")
    assert "_stagepack_completion" in done.stdout


# ---------------------------------------------------------------------- pictures of solutions


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html"])
def test_solve_draws(name: str, tmp_path: Path) -> None:
    picture = tmp_path / name
    done = CliRunner().invoke(app, ["solve", CHAIN, "-m", "greedy", "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("a.xyz", None, "no name of a picture"),
        ("nowhere/a.png", None, "cannot be written"),
        ("a.png", "matplotlib.pyplot", "need matplotlib"),
        ("a.html", "plotly.graph_objects", "needs plotly"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_solved(
    name: str,
    missing: str | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stagepack.errors import InputError

    if missing is not None:
        monkeypatch.setitem(sys.modules, missing, None)
    module = importlib.import_module("stagepack.solve")
    monkeypatch.setattr(module, "solve", lambda *_, **__: pytest.fail("it was solved"))
    with pytest.raises(InputError, match=message) as refused:
        CliRunner().invoke(
            app, ["solve", CHAIN, "--plot", str(tmp_path / name)], catch_exceptions=False
        )
    assert "pip install" in refused.value.remedy or missing is None


# ---------------------------------------------------------------------- signs of life


def test_the_line_of_a_search_says_what_is_known() -> None:
    search = Search("net", "auto")
    assert search.line() == "0 s   net, auto"
    search.bound(1000, "load")
    search.incumbent(object(), 1234567, None)
    assert search.line() == "0 s   incumbent 1,234,567   bound 1,000   gap 99.92%   net, auto"


def test_the_bar_of_a_comparison_names_what_runs_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    cells = Cells({"net": sp.load(CHAIN)})
    cells.begun(Cell("net", "dp", 0), 0, 3)
    now[0] += 65
    cells.begun(Cell("net", "cp-sat", 0), 0, 3)
    now[0] += 4
    assert cells.lines() == ["   1:09  net  dp", "    4 s  net  cp-sat"]
    ended = {"instance": "net", "method": "dp", "seed": 0, "status": "OPTIMAL", "objective": 1}
    cells.ended(ended, 1, 3)
    assert cells.lines() == ["    4 s  net  cp-sat"]


def test_time_that_runs() -> None:
    assert [elapsed(x) for x in (0.9, 59.9, 60, 3725)] == ["0 s", "59 s", "1:00", "1:02:05"]


def test_comparisons_tell_what_begins() -> None:

    told: list[tuple[str, int, int]] = []
    sp.compare(
        sp.load(CHAIN, layers=6, devices=2),
        ["greedy", "equal-layers"],
        jobs=0,
        on_start=lambda cell, done, total: told.append((cell.method, done, total)),
    )
    assert told == [("greedy", 0, 2), ("equal-layers", 1, 2)]


def test_solve_tells_bounds() -> None:

    told: list[tuple[Any, str]] = []
    result = sp.solve(sp.load(CHAIN), "dp", on_bound=lambda *news: told.append(news))
    assert told[-1] == (result.bound, result.bound_source)


def test_a_person_sees_the_search_and_a_pipe_does_not() -> None:
    words = ("solve", "packing/random/evolved", "-m", "anneal", "-t", "1", "--json")
    out, seen = watched(*words)
    assert "incumbent" in seen
    assert "bound" in seen
    assert json.loads(out)["objective"]
    out, seen = watched(*words, "-q")
    assert seen == ""
    done = python("-m", "stagepack", *words)
    assert "incumbent" not in done.stderr


# ---------------------------------------------------------------------- what is kept from people


def test_nothing_that_engines_write_is_seen() -> None:
    code = """
import os, subprocess, sys, logging
from stagepack.cli.screen import engines_silenced, Stderr
logging.basicConfig(handlers=[Stderr()], format="%(message)s")
with engines_silenced():
    os.write(1, b"BANNER")
    os.write(2, b"BANNER")
    subprocess.run(["sh", "-c", "echo BANNER; echo BANNER >&2"])
    logging.getLogger("stagepack").warning("ours")
    print("ours too", file=sys.stderr)
print("answer")
os.write(2, b"end")
"""
    done = python("-c", code)
    assert done.stdout == "answer\n"
    assert done.stderr == "ours\nours too\nend"


def test_compiling_is_told_only_while_compiling(tmp_path: Path) -> None:
    code = """
import logging, sys
logging.basicConfig(format="%(message)s", level=logging.INFO)
import stagepack.progress
stagepack.progress.PATIENCE = 0.0
from stagepack.instances.compiled import compiled
sys.path.insert(0, sys.argv[1])
import some_kernels
progress = stagepack.progress.Progress(lambda _: 0, lambda _: ())
with progress.setup("loading kernels"):
    assert some_kernels.add(1, 2) == 3
import time; time.sleep(0.2)
"""
    kernel = tmp_path / "some_kernels.py"
    kernel.write_text(
        "from stagepack.instances.compiled import compiled\n"
        "@compiled\ndef add(a, b):\n    return a + b\n"
    )
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first = python("-c", code, str(tmp_path), env=env)
    again = python("-c", code, str(tmp_path), env=env)
    assert "compiling kernels (first use only) ..." in first.stderr.splitlines()
    assert "compiling" not in again.stderr
    assert again.returncode == 0, again.stderr


# ---------------------------------------------------------------------- what people read


@pytest.mark.parametrize("width", [0, 1, 7, 39])
def test_odd_widths_break_nothing(width: int) -> None:
    env = {"COLUMNS": str(width)}
    listed = python("-m", "stagepack", "list", "pipeline", env=env)
    assert listed.returncode == 0, listed.stderr
    assert "pipeline/bert-base" in listed.stdout


def test_a_question_of_fitting_is_answered() -> None:
    given = ["packing/random/planted", "-m", "first-fit-size", "--capacity", "2MiB"]
    words = ["solve", *given]
    done = CliRunner().invoke(app, words)
    assert "fits (FEASIBLE)" in done.output
    assert "(fit) 1," in done.output
    result = sp.solve(sp.load("packing/random/planted", capacity=2**21), "first-fit-size")
    assert "fits (FEASIBLE)" in str(result)
    assert "fits (FEASIBLE)" in result._repr_html_()
    done = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(done.stdout)["status"] == "FEASIBLE"


def test_comparisons_say_what_fits(tmp_path: Path) -> None:
    roomy = sp.load("packing/random/planted", capacity=2**21)
    comparison = sp.compare([roomy], methods=["first-fit-size"], jobs=0)
    assert [row["status"] for row in comparison.rows] == ["FEASIBLE"]
    comparison.to_html(tmp_path)
    page = (tmp_path / "index.html").read_text()
    for said in (comparison.table(80), comparison._repr_html_()):
        assert "FEASIBLE" not in said
    assert "fits" in comparison.table(80)
    assert "<td>fits</td>" in comparison._repr_html_()
    assert re.search(r'<span class="status fits"[^>]*>fits</span>', page)


def test_lines_of_progress_say_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    roomy = sp.load("packing/random/planted", capacity=2**21)
    cells = Cells({"roomy": roomy})
    cells.told = True
    row = {"instance": "roomy", "method": "dive", "seed": 0, "status": "FEASIBLE"}
    cells.ended({**row, "objective": 2**20}, 1, 2)
    cells.ended({**row, "objective": 2**22}, 2, 2)
    assert capsys.readouterr().err == "1/2 roomy dive fits\n2/2 roomy dive FEASIBLE\n"


@pytest.mark.parametrize("objective", ["fit", "peak"])
def test_the_summary_is_that_of_print(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    given = sp.load("packing/random/planted", objective=objective, capacity=2**21)
    words = ["solve", "packing/random/planted", "-m", "dive", "--objective", objective]
    done = CliRunner().invoke(app, [*words, "--capacity", "2MiB"])
    printed = str(sp.solve(given, "dive"))

    def said(lines: str) -> list[str]:
        timeless = re.sub(r" in [<\d].*", "", lines)
        return [line.rstrip() for line in timeless.splitlines()][:3]

    assert said(done.output) == said(printed)


def large(kind: str) -> Any:
    """Return an instance that has no answer, whose numbers are large."""
    if kind == "layers":
        return sp.load("pipeline/random/infeasible")
    if kind == "load":
        return sp.load("packing/random/planted", capacity=900_000)
    if kind in ("search", "excess", "reserved"):
        tight = sp.load("packing/above-load")
        times = {"start": tight.start * 20_011, "end": tight.end * 20_011}
        scaled = tight.replace(size=tight.size * 100_003, capacity=16 * 100_003, **times)
        if kind == "reserved":
            return scaled.replace(reserved=[(200_006, 400_012)], objective="fit")
        return scaled.replace(objective="fit" if kind == "search" else "peak")
    if kind == "memory":
        return sp.PipelineSchedule.from_arrays(
            [50_000, 50_000], [60_000, 60_000], microbatches=4, memory_forward=[90_000, 90_000],
            memory_backward=[-90_000, -90_000], limit=80_000,
        )  # fmt: skip
    return sp.load("phases/bert-large", capacity=1_000_000)


@pytest.mark.parametrize(
    "kind", ["layers", "load", "search", "excess", "reserved", "memory", "phases"]
)
def test_no_reason_has_a_number_without_separators(kind: str) -> None:
    result = sp.solve(large(kind), "auto", time_limit=5)
    assert "," in result.reason
    assert re.search(r"\d{5}", result.reason) is None, result.reason


def test_no_violation_has_a_number_without_separators() -> None:
    packed, chain = large("search"), sp.load("pipeline/random/infeasible")
    n, k = chain.n, chain.k
    cuts = [*range(k), n]
    found = [
        *packed.check(sp.PackingSolution(packed.start * 0)),
        *packed.check(sp.PackingSolution(packed.start * 0 + 16 * 100_003)),
        *chain.check(sp.PipelineSolution(tuple(cuts), tuple(range(k)))),
    ]
    assert {violation.rule for violation in found} >= {"overlap", "capacity"}
    assert [v for v in found if re.search(r"\d{5}", str(v))] == []


def test_numbers_in_reasons_have_separators() -> None:
    crowded = sp.load("packing/random/planted", capacity=900_000)
    assert "hold 1,048,576 bytes, 148,576 more than the capacity of 900,000" in (
        sp.solve(crowded, "auto", time_limit=5).reason
    )
