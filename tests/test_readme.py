"""The README keeps its word: its commands are CI's, its example runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.instances.formats import FORMATS, read
from stagepack.instances.packing import KIND as PACKING
from stagepack.instances.phases import KIND as PHASES
from stagepack.instances.phases import Mode
from stagepack.instances.problem import PROBLEMS
from stagepack.solve import REGISTRY, solve

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_ci_runs_the_very_test_command() -> None:
    (command,) = [line for block in blocks("sh") for line in block.splitlines() if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_examples_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\nprint('---')\n".join(blocks("python"))],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    stages, buffers, schedule, phases, graph = done.stdout.split("---\n")
    assert stages.startswith(
        "pipeline: 6 layers, 3 devices, inference, bottleneck\nOPTIMAL by auto"
    )
    assert "\nOPTIMAL 3750 3750 exhausted search\n(0, 2, 4, 6)\n" in stages
    assert (tmp_path / "stages.html").stat().st_size > 10_000
    assert buffers.startswith("[4 4 0] OPTIMAL 8\n  id  size  start  end  offset")
    assert schedule == "OPTIMAL 193 193\n"
    assert phases == "OPTIMAL 356 (0, 2, 6)\n"
    assert graph.startswith("25.14 {'in': 2, ")


def test_the_profile_is_read_and_solved(tmp_path: Path) -> None:
    for number, text in enumerate(blocks("json")):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        assert solve(read(path)).status == "OPTIMAL"
    assert number == 3


def test_every_method_and_objective_is_described() -> None:
    named = [(m.kind, m.name) for methods in REGISTRY.values() for m in methods]
    rules = {(PACKING, name) for name in RULES} - {(PACKING, "bank-aware")}
    named += [(kind, word) for kind, known in PROBLEMS.items() for word in known.objectives]
    named += [(PHASES, mode) for mode in Mode]
    for kind, name in named:
        if (kind, name) not in rules:
            assert f"`{name}`" in README, f"{name} of {kind} is in no table of README.md"


def test_every_format_and_benchmark_is_named() -> None:
    for known in FORMATS:
        assert f"`{known.name}`" in README, f"README.md does not name the format {known.name}"
    for path in sorted((ROOT / "benchmarks").glob("soak*.py")):
        assert f"`.{path.stem}`" in README, f"README.md does not name benchmarks.{path.stem}"


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).is_file(), target
