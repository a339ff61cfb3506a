"""The walls of the house: who imports whom, what an import costs, what the wheel holds."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagepack.kinds import KINDS
from tests.count_lines import counted
from tests.imports import PACKAGE, ROOT, imports, modules, wing

FLOORS = {
    "contracts": 0,
    "errors": 0,
    "evidence": 0,
    "files": 0,
    "kinds": 0,
    "linear": 0,
    "progress": 0,
    "interrupts": 0,
    "kernels": 0,
    "memory": 0,
    "result": 0,
    "shown": 0,
    "spelling": 0,
    "stopping": 0,
    "instances": 1,
    "verify": 1,
    "formats": 2,
    "heuristics": 2,
    "formulations": 2,
    "solvers": 2,
    "catalog": 3,
    "methods": 3,
    "solve": 4,
    "records": 4,
    "claims": 4,
    "report": 5,
    "plots": 5,
    "integrations": 5,
    "compare": 6,
    "tradeoffs": 6,
    "planning": 6,
    "cli": 7,
    "__init__": 7,
    "__main__": 7,
}
# On these every wing stands.
GROUND = {
    "contracts",
    "errors",
    "evidence",
    "files",
    "interrupts",
    "kernels",
    "memory",
    "kinds",
    "linear",
    "progress",
    "result",
    "shown",
    "spelling",
    "stopping",
}
# What a wing may import besides itself and the ground floor.
MAY_IMPORT = {
    "contracts": set(),
    "errors": set(),
    "evidence": {"contracts"},
    "files": {"errors", "memory"},
    "memory": set(),
    "kinds": {"errors", "progress"},
    "kernels": {"progress"},
    "linear": set(),
    "interrupts": {"contracts", "errors", "progress", "stopping"},
    "progress": {"contracts", "errors", "evidence", "memory", "result", "stopping"},
    "result": {"contracts", "errors", "evidence", "files", "shown"},
    "shown": {"errors", "files"},
    "spelling": {"errors"},
    "stopping": {"errors"},
    "instances": set(),
    "verify": {"instances"},
    "formats": {"instances"},
    "catalog": {"instances", "formats"},
    "heuristics": {"instances"},
    "formulations": {"instances", "heuristics"},
    "solvers": set(),
    "methods": {"instances", "verify", "heuristics", "formulations", "solvers"},
}
LONGEST_FILE, LONGEST_FUNCTION = 600, 60  # lines; of functions without what they promise
MOST_FILES = 20  # of a folder, beside what makes it a package
LONG = {
    "heuristics/packing/constructive/rules.py: _rules": "a table",
    "heuristics/packing/exact_search/exact_general.py: __init__": "a constructor of many arrays",
    "instances/packing/instance.py: from_arrays": "a constructor: every field is read and checked",
    "instances/phases/liveness.py: spans": "inputs, products, gradients: all by the same indices",
    "instances/pipeline/instance.py: from_arrays": "a constructor: every field is read and checked",
}
"""Longer functions, and why; kernels are as long as what is compiled together."""
TOLD = {
    "cost": r"\bO\(|^(Cost|Size)$|\bCosts?\b[^.]*:|[Cc]osts? (are|of)\b|[Ss]izes? and sources? are",
    "source": r"\bSources?( and costs?)?:|^Source$|\bsources?( are|:)|names its source",
}
"""What the head of a heuristic or formulation says besides its idea, and how."""
HEADLESS = {
    "formulations/base.py": "what a model is",
    "formulations/program.py": "the language of programs",
    "formulations/whole.py": "the language of programs in whole numbers",
    "*/effort.py": "what work costs: no heuristic",
    "*/tuning.py": "numbers: no heuristic",
    "*/*_tuning.py": "numbers: no heuristic",
    "*_state.py": "arrays of kernels, whose heads say it",
}
OF_ALL = (Path("relations"),)
"""Folders of tests of what holds between answers, whoever gives them."""
HEAVY = ("torch", "matplotlib", "numba", "ortools", "pandas", "plotly", "pyomo", "highspy", "scipy")


@pytest.mark.parametrize("name", modules())
def test_nothing_imports_upward(name: str) -> None:
    home = wing(name)
    for imported in imports(name):
        other = wing(imported)
        if other == home or (other in GROUND and home not in GROUND):
            continue
        assert FLOORS[other] <= FLOORS[home], f"{name} imports {imported}"
        if home in MAY_IMPORT:
            assert other in MAY_IMPORT[home], f"{name} imports {imported}"


def test_the_verifier_is_small_plain_and_alone() -> None:
    """Who verifies a proof shares no code with who found it, and can be read in an hour."""
    home = PACKAGE / "verify"
    assert sum(counted(path)["code"] for path in home.glob("*.py")) <= 1600
    own = {f"stagepack.{name}" for name in ("contracts", "evidence", "kinds")}
    for path in home.glob("*.py"):
        for name in _run_time_imports(path):
            plain = name.split(".")[0] in sys.stdlib_module_names
            assert plain or name in own or name.startswith("stagepack.verify"), (path, name)
    plans = [PACKAGE / "planning" / name for name in ("steps.py", "step_labels.py")]
    heads = {name.split(".")[0] for path in plans for name in _run_time_imports(path)}
    assert not heads & {"numpy", *HEAVY}


def _run_time_imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file names in imports that are not for types alone."""
    tree = ast.parse(path.read_text())
    types = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE" in ast.dump(node.test)
    ]
    skipped = {id(node) for one in types for node in ast.walk(one)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            of_ours = node.module == "stagepack"
            names = [f"stagepack.{alias.name}" for alias in node.names]
            yield from names if of_ours else [node.module or ""]
        elif isinstance(node, ast.Import) and id(node) not in skipped:
            yield from (alias.name for alias in node.names)


def test_there_are_no_import_circles() -> None:
    graph = {name: imports(name) for name in modules()}
    # A module may use what its own package says for all of them, before it gathers them.
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"circle: {' -> '.join([*path, name])}"
        if name in done:
            return
        for imported in sorted(graph.get(name, ())):
            if not name.startswith(f"{imported}."):
                visit(imported, (*path, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_files_and_functions_are_short_or_say_why_not() -> None:
    found = set()
    for path in modules().values():
        text = path.read_text()
        assert text.count("\n") <= LONGEST_FILE, path
        if path.name.endswith("kernels.py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and (node.end_lineno or 0) - body[0].lineno >= LONGEST_FUNCTION:
                    found.add(f"{path.relative_to(PACKAGE)}: {node.name}")
    assert found == set(LONG), "in steps with names they read better"


def test_folders_hold_what_one_can_oversee() -> None:
    files = Counter(path.parent for path in modules().values() if path.name != "__init__.py")
    assert not {str(home) for home, count in files.items() if count > MOST_FILES}


def test_heuristics_ask_whether_to_go_on_under_the_same_names() -> None:
    """The normal form comes first; `keep_going` says no, `pause` raises, `progress` hears all."""
    names = {"Callable[[], bool]": "keep_going", "Callable[[], None]": "pause",
             "Callable[[], object]": "pause", "Progress": "progress"}  # fmt: skip
    found = set()
    for path in (PACKAGE / "heuristics").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            given = [arg for arg in node.args.args if arg.arg != "self"]
            for place, arg in enumerate([*given, *node.args.kwonlyargs]):
                kind = ast.unparse(arg.annotation).removesuffix(" | None") if arg.annotation else ""
                kind = "Progress" if re.fullmatch(r"\w*Progress(\[.*\])?", kind) else kind
                if kind in names:
                    found.add((kind, arg.arg))
                    assert arg.arg == names[kind], f"{path}: {node.name}({arg.arg}: {kind})"
                    first = place == 0 and len(given) > 1
                    assert not first, f"{path}: {node.name} takes {arg.arg} first"
    assert len(found) >= len(names)


def test_tests_lie_where_what_they_test_lies() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        assert (PACKAGE / folder).is_dir() or (ROOT / folder).is_dir() or folder in OF_ALL, path


def test_every_module_is_of_a_known_wing() -> None:
    assert {wing(name) for name in modules()} <= set(FLOORS)


def test_nobody_else_names_a_problem() -> None:
    """A problem is its own folders and a line in `kinds.py`; signatures may tell its types."""
    families = "|".join(known.family for known in KINDS.values())
    wings = "instances|catalog|verify|heuristics|formulations|methods|report|claims/every"
    own = re.compile(rf"stagepack/({wings})/({families})")
    imported = rf"^ *(from|import) stagepack\.\w+\.({families})\b"
    spelt = (f"[\"']{kind}[\"']" for kind in KINDS)
    named = re.compile("|".join((imported, *spelt)), re.MULTILINE)
    allowed = {
        "__init__.py",  # public names and types, for type checkers
        "kinds.py",
        "instances/types.py",
        "catalog/names.py",
        "formats/known.py",  # which kinds the files of each tool hold
        "integrations/executorch/placing.py",  # tensors of programs are buffers
        "integrations/pytorch/__init__.py",  # modules are cut by plans of chains
        "integrations/pytorch/pipelining.py",
        "planning/claims.py",  # whose steps can be bounded
        "planning/document.py",  # plans have one stage of a chain on each device
        "planning/explained.py",  # what is planned anew
        "planning/loading.py",  # phases of stages
        "planning/measured/__init__.py",  # a plan of a chain
        "planning/measured/running.py",  # stages and schedules of plans run
        "planning/model_plan.py",  # what the levels of a plan are
        "planning/phased_graphs.py",
        "planning/search.py",
        *(f"planning/{name}.py" for name in ("graphs", "grouped", "phased", "resident")),
        "planning/stages.py",  # what each level is for the others
        "planning/tries.py",
        "planning/serving/paced.py",  # stages of chains
        "planning/serving/search.py",
        "planning/layouts/search.py",
        *(f"planning/tuner/{name}.py" for name in ("processes", "profiled", "search")),
        "plots/__init__.py",  # public pictures
        "solve.py",  # `pack`, which makes an instance of arrays
        "tradeoffs/depths.py",  # copies of buffers
        "tradeoffs/moves.py",  # chains that are cut anew
        "planning/step_labels.py",  # of chains of networks
        "planning/steps.py",  # of training, whose parts are of several kinds
    }
    tools = re.compile(
        r"stagepack/formats/(\w+/|layer_table|c_header|linker_script|memories|roles|cuts)"
    )
    found = {
        str(path.relative_to(PACKAGE))
        for path in modules().values()
        if not own.match(str(path.relative_to(ROOT))) and named.search(path.read_text())
        if not tools.match(str(path.relative_to(ROOT)))
    }
    assert found <= allowed


@pytest.mark.skipif((ROOT / "PKG-INFO").exists(), reason="a source distribution has no links")
def test_root_links_lead_to_the_wings() -> None:
    for name in ("formulations", "solvers", "heuristics", "instances"):
        link = ROOT / name
        assert link.is_symlink()
        assert link.readlink() == Path("stagepack") / name


def python(code: str, **options: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout.strip())


@pytest.mark.parametrize(
    "statement",
    [
        "import stagepack",
        "import stagepack.cli",
        "import stagepack.solve",
        "import stagepack; stagepack.entries()",
        "from stagepack.methods import pipeline",
        "from stagepack import read, load, InputError, Status",
    ],
)
def test_imports_stay_light(statement: str) -> None:
    loaded = python(f"{statement}\nimport sys\nprint(*[m for m in {HEAVY} if m in sys.modules])")
    assert loaded == ""


@pytest.mark.parametrize(
    "name", ["profile.json", "graph.json", "phases.json", "groups.json", "buffers.json"]
)
def test_small_instances_are_solved_without_a_compiler(name: str) -> None:
    """Numba takes a quarter of a second to load: most of such a run."""
    path = str(ROOT / "examples" / name)
    solved = python(
        f"import sys, stagepack as sp\nresult = sp.solve(sp.read({path!r}))\n"
        "print(result.status, 'numba' in sys.modules)"
    )
    assert solved == "OPTIMAL False"


def test_the_command_line_starts_without_arrays() -> None:
    """Options and help need the words of all problems, but neither their data nor numpy."""
    code = """
        import sys
        import stagepack.cli
        print(stagepack.__all__[0], *{"numpy", "msgspec", "stagepack.solve"} & set(sys.modules))
    """
    assert python(code) == "Allowed"


def test_names_of_problems_are_told_to_type_checkers() -> None:
    """What a folder loads when it is asked for is what it imports for type checkers."""
    for known in KINDS.values():
        name = f"stagepack.instances.{known.family}"
        text = modules()[name].read_text()
        told = re.findall(r"from ([\w.]+) import (\w+) as \2\n", text)
        loaded = " ".join(re.findall(r"=\"([\w ]+)\"", text)).split()
        assert sorted(loaded) == sorted(public for _, public in told)
        package = importlib.import_module(name)
        for module, public in told:
            assert getattr(package, public) is getattr(importlib.import_module(module), public)


@pytest.mark.parametrize("order", [("ortools.sat.python.cp_model", "highspy"),
                                   ("highspy", "ortools.sat.python.cp_model")])  # fmt: skip
def test_ortools_and_highspy_live_together(order: tuple[str, str]) -> None:
    assert python(f"import {order[0]}\nimport {order[1]}\nprint('both')") == "both"


def test_names_of_the_first_version_are_still_there() -> None:
    names = """Allowed Banks CheckError Chip Cluster Comparison Device Gap InputError Instance
        LayerProfile Link LmemPacking Memory ModelProfile Objective PackingSolution PhaseSchedule
        PhaseSolution PipelinePartition PipelineSchedule PipelineSolution Result ResultCheck
        ScheduleSolution Solution StagepackError Status Termination Trace Variable Violation
        __version__ check_result compare entries estimate formats load measure methods pack plan
        plot program read read_all read_measured read_solution schema solve suite versions write
        write_solution"""
    package = importlib.import_module("stagepack")
    for name in names.split():
        assert getattr(package, name) is not None, name
    assert importlib.import_module("stagepack.instances.phases.execute").execute


def test_public_names_are_what_they_say() -> None:
    code = """
        import stagepack as sp
        import stagepack.solve, stagepack.compare, stagepack.methods.pipeline
        sp.solve(sp.PipelinePartition.from_arrays([1, 2], devices=1), "greedy")
        for name in sp.__all__:
            getattr(sp, name)
        assert callable(sp.solve) and callable(sp.compare) and callable(sp.methods)
        assert sp.plots.plot is sp.plot
        print(sp.solve.__module__, sp.compare.__module__)
    """
    assert python(code) == "stagepack.solve stagepack.compare.run"


def test_the_wheel_holds_the_package_alone_and_works_elsewhere(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "stagepack", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    done = subprocess.run([*build, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"stagepack"}
    for pattern in ("py.typed", "catalog/*.csv", "*/static/*", "*/templates/*.html"):
        data = {str(path.relative_to(ROOT)) for path in PACKAGE.glob(pattern)}
        assert data
        assert data <= set(names)
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path / "site")!r})
        import stagepack as sp
        assert sp.__file__.startswith({str(tmp_path)!r}), sp.__file__
        result = sp.solve(sp.PipelinePartition.from_arrays([1, 5, 3, 2, 4], devices=2))
        print(result.status, result.objective)
    """
    assert python(code, cwd=tmp_path) == "OPTIMAL 9"


def test_models_say_in_their_heads_what_they_are() -> None:
    """Sets, parameters, variables, objective, constraints, in this order."""
    heads = ["Sets", "Parameters", "Variables", "Objective", "Constraints"]
    found = 0
    for path in (PACKAGE / "formulations").rglob("*.py"):
        lines = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
        if "Sets" in lines and "Variables" in lines:
            assert [line for line in lines if line in heads] == heads, path
            found += 1
    assert found > 10


def test_heuristics_and_formulations_say_idea_cost_and_source() -> None:
    wings = (PACKAGE / "formulations", PACKAGE / "heuristics")
    excused, found, silent = set(), 0, []
    for path in [path for home in wings for path in home.rglob("*.py")]:
        reason = {pattern for pattern in HEADLESS if path.match(pattern)}
        excused |= reason
        if path.name == "__init__.py" or reason:
            continue
        head = ast.get_docstring(ast.parse(path.read_text())) or ""
        lacks = [what for what, told in TOLD.items() if not re.search(told, head, re.MULTILINE)]
        found += 1
        if lacks:
            silent.append(f"{path.relative_to(PACKAGE)}: {', '.join(lacks)}")
    assert not silent, "\n".join(silent)
    assert found > 150
    assert excused == set(HEADLESS)


def test_kernels_are_compiled_from_files_that_the_cache_knows() -> None:
    """What a kernel imports is compiled into it, so that the cache must ask about its source."""
    from stagepack.kernels.cache import KERNELS

    compiled = [
        p
        for p in PACKAGE.rglob("*.py")
        if re.search(r"^@(compiled$|tiered\()", p.read_text(), re.M)
    ]
    assert len(compiled) > 10
    for path in compiled:
        module = next(name for name, file in modules().items() if file == path)
        for name in imports(module) - {
            "stagepack.kernels.compiled",
            "stagepack.instances.profile",  # types only
        }:
            source = modules()[name]
            assert any(source.match(pattern) for pattern in KERNELS), f"{path} imports {name}"
        assert any(path.match(pattern) for pattern in KERNELS), path


def test_parts_of_kernels_count_references_only_where_they_must() -> None:
    """A step counts none: an array that it returned would be freed too soon, one made never.

    All others are steps: counting takes longer than what most of them do.
    """
    plain = {"None", "bool", "float", "int", "tuple"}

    def ways(node: ast.FunctionDef) -> set[str]:
        return {ast.unparse(one).partition("(")[0] for one in node.decorator_list}

    functions = [
        (path, node)
        for path in PACKAGE.rglob("*.py")
        if "stagepack.kernels.compiled import" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.returns is not None
        if {"compiled", "tiered", "inner", "step", "inlined"} & ways(node)
    ]
    returning = {
        (path, node.name)
        for path, node in functions
        if not set(re.findall(r"\w+", ast.unparse(node.returns or node))) <= plain
    }
    found = Counter[str]()
    for path, node in functions:
        called = {ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
        makes = {"np.empty", "np.zeros", "np.ones", "np.full", "np.arange"} & called
        counts = bool(makes or returning & {(path, name) for name in {node.name, *called}})
        for way in {"inner", "step", "inlined"} & ways(node):
            found[way] += 1
            assert counts == (way == "inner"), f"{path}: {node.name}"
    assert min(found["inner"], found["step"]) > 3
