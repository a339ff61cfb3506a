"""Types reach those who install the package, editable or not, and tell what an instance answers."""

from __future__ import annotations

import functools
import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path

import pytest

import stagepack
from stagepack import kinds
from stagepack.contracts import Instance
from stagepack.instances.problem import PROBLEMS
from stagepack.solve import REGISTRY
from tests.tell_types import told

ROOT = Path(__file__).parent.parent
TOLD = told()
LINKS = ("formulations", "heuristics", "instances", "solvers")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a new environment in which a clone is installed as the README says, editable."""
    folder = tmp_path_factory.mktemp("types")
    clone = folder / "clone"
    shutil.copytree(
        ROOT / "stagepack", clone / "stagepack", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    for name in LINKS:
        (clone / name).symlink_to(Path("stagepack") / name)
    for name in ("tests", "benchmarks"):
        (clone / name).mkdir()
        (clone / name / "__init__.py").touch()
    venv.create(folder / "venv", symlinks=os.name != "nt")
    scripts = "Scripts" if os.name == "nt" else "bin"
    python = folder / "venv" / scripts / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    # What the package depends on, and pip, come from the environment of the tests.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", str(clone)]
    run(python, *install, cwd=folder)
    return python


def run(python: Path, *arguments: str, cwd: Path) -> str:
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), *arguments], capture_output=True, text=True, check=False, cwd=cwd, env=outside
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mypy(python: Path, folder: Path, *scripts: str) -> list[str]:
    """What a strict mypy says of scripts that lie outside the clone."""
    files = []
    for number, script in enumerate(scripts):
        files.append(folder / f"script{number}.py")
        files[-1].write_text(script)
    command = [
        *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", ""),
        *("--python-executable", str(python), "--cache-dir", str(python.parent / "cache")),
        *map(str, files),
    ]
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=outside
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_an_editable_install_is_seen_and_the_root_links_are_not_in_the_way(fresh: Path) -> None:
    code = "import stagepack; print(stagepack.__file__); print(stagepack.load('phases/mnist').n)"
    where, layers = run(fresh, "-c", code, cwd=fresh.parent).splitlines()
    assert Path(where).parts[-3:] == ("clone", "stagepack", "__init__.py")
    assert int(layers) > 0
    site = Path(sysconfig.get_path("purelib", vars={"base": str(fresh.parent.parent)}))
    finders = [path.name for path in site.iterdir() if "finder" in path.name]
    assert not finders, "installed by an import hook, which type checkers do not follow"


RIGHT = """
    import stagepack as sp

    chain = sp.PipelinePartition.from_arrays([1, 2, 3], devices=2)
    reveal_type(sp.solve(chain))
    reveal_type(sp.solve(chain).solution)
    print(sp.solve(chain, "dp", time_limit=1, seed=3).solution.boundaries)
    reveal_type(sp.solve(sp.LmemPacking.from_arrays([4], [0], [3])))
    reveal_type(sp.solve(sp.load("schedule/uniform")))
    reveal_type(sp.solve(sp.read("mine.json", kind="phase-schedule")))
    reveal_type(sp.read_all("mine.json", kind="lmem-packing"))
    reveal_type(sp.pack([4], [0], [3])[1].solution)
    reveal_type(sp.read_solution("mine.json", chain))
    reveal_type(sp.methods(chain))
    reveal_type(sp.compare([chain, sp.load("phases/mnist")], "auto"))

    def boundaries(instance: sp.Instance, solution: sp.Solution) -> str:
        return instance.digest + str(solution.to_dict())
"""
REVEALED = [
    "Result[PipelineSolution]",
    "PipelineSolution | Any",
    "Result[PackingSolution]",
    "Result[ScheduleSolution]",
    "Result[PhaseSolution]",
    "list[LmemPacking]",
    "PackingSolution | Any",
    "PipelineSolution",
    "MethodList",
    "Comparison",
]


def test_what_is_solved_says_what_comes_out(fresh: Path, tmp_path: Path) -> None:
    lines = mypy(fresh, tmp_path, textwrap.dedent(RIGHT))
    revealed = [re.findall(r'Revealed type is "(.*)"', line) for line in lines]
    short = [re.sub(r"[\w.]+\.(?=\w)", "", found[0]) for found in revealed if found]
    # mypy 1 writes X | Any so.
    assert [re.sub(r"Union\[(\w+), Any\]", r"\1 | Any", one) for one in short] == REVEALED
    assert len(lines) == len(REVEALED), lines


WRONG = """
    import stagepack as sp

    chain = sp.PipelinePartition.from_arrays([1, 2, 3], devices=2)
    sp.solve(chain).solution.boundarys  # attr
    sp.solve(chain, sed=3)  # call-arg
    sp.solve(chain, "dp", "bottleneck")  # misc
    sp.solve("mine.json")  # arg-type
    sp.load("schedule/uniform").layers  # attr-defined
    sp.solve(sp.load("packing/random/planted")).solution.boundaries  # attr
    sp.slove  # attr-defined
    sp.Status.OPTIMUM  # attr-defined
"""


def test_misspellings_are_found(fresh: Path, tmp_path: Path) -> None:
    script = textwrap.dedent(WRONG)
    lines = [line for line in mypy(fresh, tmp_path, script) if ": error:" in line]
    places = {int(line.split(":")[1]) for line in lines}
    assert places == {at for at, text in enumerate(script.splitlines(), 1) if "  # " in text}, lines


def test_the_examples_of_the_readme_are_well_typed(fresh: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    scripts = [f"import stagepack as sp\n{text}" for text in blocks]
    assert mypy(fresh, tmp_path, *scripts) == []


@pytest.mark.parametrize("path", TOLD, ids=lambda path: str(path.relative_to(ROOT / "stagepack")))
def test_type_checkers_are_told_of_every_kind(path: Path) -> None:
    """In whatever order."""
    written = path.read_text().splitlines()
    assert sorted(written) == sorted(TOLD[path].splitlines()), "run python -m tests.tell_types"


def test_every_kind_has_methods() -> None:
    assert set(kinds.KINDS) == set(REGISTRY)


def test_what_instances_keep_is_a_property_to_type_checkers() -> None:
    """Pyright, and so Pylance, takes a `cached_property` for none, and nothing for an instance."""
    asked = {name for name, value in vars(Instance).items() if isinstance(value, property)}
    kept = [
        (base.__name__, inspect.getsource(value.func))
        for problem in PROBLEMS.values()
        for base in getattr(stagepack, problem.instance).__mro__
        for name, value in vars(base).items()
        if name in asked and isinstance(value, functools.cached_property)
    ]
    assert len(kept) > len(PROBLEMS)
    assert [name for name, source in kept if not source.strip().startswith("@cached\n")] == []
