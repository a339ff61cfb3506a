"""What the shell offers after Tab."""

from __future__ import annotations

import pytest

from tests.cli.shell import python


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


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("bash", "_stagepack_completion() {"),
        ("zsh", "#compdef stagepack"),
        ("fish", "complete --command stagepack"),
    ],
)
def test_completion_of_the_shell_that_is_named_can_be_shown(shell: str, said: str) -> None:
    assert said in python("-m", "stagepack", "--show-completion", shell).stdout


def test_an_unknown_shell_is_refused() -> None:
    done = python("-m", "stagepack", "--show-completion", "tcsh")
    assert done.returncode == 2
    assert "'tcsh' is not one of" in done.stderr
