"""The README and the reference keep their word: commands are CI's, nothing is left unsaid."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stagepack.formats.door import formats, read
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.instances.packing import KIND as PACKING
from stagepack.instances.phases import KIND as PHASES
from stagepack.instances.phases import Mode
from stagepack.instances.problem import PROBLEMS
from stagepack.kinds import KINDS
from stagepack.solve import REGISTRY, solve

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
REFERENCE = {
    kind: ROOT / "docs" / "problems" / f"{known.family}.md" for kind, known in KINDS.items()
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_ci_runs_the_very_test_command() -> None:
    (command,) = [line for block in blocks("sh") for line in block.splitlines() if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_example_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", *blocks("python")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "pipeline: 6 layers, 3 devices, inference, bottleneck\nOPTIMAL by auto"
    )
    assert "\nOPTIMAL 3750 3750 exhausted search\n(0, 2, 4, 6)\n" in done.stdout
    assert (tmp_path / "stages.html").stat().st_size > 10_000


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_of_each_kind_is_read_and_solved(kind: str) -> None:
    (name,) = re.findall(r"\{literalinclude\} (\S+\.json)", REFERENCE[kind].read_text())
    instance = read(REFERENCE[kind].parent / name)
    assert instance.kind == kind
    assert solve(instance).status == "OPTIMAL"


def test_every_method_and_objective_is_described() -> None:
    named = [(m.kind, m.name) for methods in REGISTRY.values() for m in methods]
    rules = {(PACKING, name) for name in RULES} - {(PACKING, "bank-aware")}
    named += [(kind, word) for kind, known in PROBLEMS.items() for word in known.objectives]
    named += [(PHASES, mode) for mode in Mode]
    for kind, name in named:
        if (kind, name) not in rules:
            page = REFERENCE[kind]
            assert f"`{name}`" in page.read_text(), (
                f"{name} of {kind} is in no table of {page.name}"
            )


def test_every_format_and_benchmark_is_named() -> None:
    files = (ROOT / "docs" / "formats.md").read_text()
    for known in formats():
        assert f"`{known.name}`" in files, f"docs/formats.md does not name the format {known.name}"
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text()
    for path in sorted((ROOT / "benchmarks").glob("soak*.py")):
        name = f"benchmarks.{path.stem}`"
        assert name in benchmarks, f"docs/benchmarks.md does not name {path.stem}"


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).is_file(), target
