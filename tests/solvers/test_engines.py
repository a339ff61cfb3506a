"""One body of tests over every engine, each on models as it takes them."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError, StagepackError
from stagepack.linear import Array
from stagepack.result import Status
from stagepack.solvers import Engine, Limits, engine, engines
from tests.solvers.models import (
    Milp,
    contradiction,
    covering,
    market_split,
    random_milp,
    single_machine,
)

OWN = ["cp-sat", "highs", "pyomo:highs"]
FOREIGN = ["pyomo:glpk", "pyomo:cbc", "pyomo:appsi_highs"]
SIX = np.array([7, 0, 6, 0])


def ready(name: str) -> Engine:
    found = engine(name)
    reason = found.unavailable()
    if reason:
        pytest.skip(reason)
    return found


def solve(name: str, milp: Milp, **arguments: Any) -> Any:
    return ready(name).solve(milp.written_for(name), **arguments)


own = pytest.mark.parametrize("name", OWN)
every = pytest.mark.parametrize("name", OWN + FOREIGN)
# A solver inside our own process that has no interrupter runs on unheard: not for these tests.
stoppable = pytest.mark.parametrize("name", OWN + FOREIGN[:-1])


def test_the_names() -> None:
    assert engines() == ["cp-sat", "highs", "pyomo:highs"]
    for name in engines():
        assert engine(name).name == name
    assert engine("pyomo").name == "pyomo:highs"
    assert engine("pyomo:cbc").name == "pyomo:cbc"


@pytest.mark.parametrize("name", ["", "gurobi", "pyomo:", "cp_sat"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match=r"cp-sat, highs, pyomo:highs, or pyomo:NAME"):
        engine(name)


def test_a_missing_solver_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    scip = engine("pyomo:scip")
    assert "`scip`" in scip.unavailable()
    assert "conda install" in scip.unavailable()
    with pytest.raises(StagepackError, match=r"pyomo:scip is unavailable: no executable `scip`"):
        scip.solve(covering().arrays())
    assert "'nonesuch'" in engine("pyomo:nonesuch").unavailable()


@every
def test_optimum(name: str) -> None:
    outcome = solve(name, covering())
    assert outcome.status is Status.OPTIMAL
    assert np.allclose(outcome.values, SIX)
    assert outcome.objective == pytest.approx(46)
    assert outcome.bound == pytest.approx(46)
    assert outcome.hint_accepted is None
    assert not outcome.interrupted


@every
def test_infeasible(name: str) -> None:
    outcome = solve(name, contradiction())
    assert outcome.status is Status.INFEASIBLE
    assert outcome.values is None
    assert outcome.objective is None
    assert outcome.bound is None


@own
def test_no_objective(name: str) -> None:
    milp = covering()
    milp.costs, milp.offset = np.zeros(4), 0.0
    outcome = solve(name, milp)
    assert outcome.status is Status.OPTIMAL
    assert milp.feasible(outcome.values)


@own
@pytest.mark.parametrize("hint", [[7, 0, 6, 0], [0, 0, 10, 3], [4, 1, 8, 1]])
def test_a_feasible_hint_is_accepted(name: str, hint: list[int]) -> None:
    outcome = solve(name, covering(), hint=np.array(hint))
    assert outcome.status is Status.OPTIMAL
    assert outcome.hint_accepted is True


@pytest.mark.parametrize("hint", [[7, 0, 6, 0], [0, 0, 10, 3], [4, 1, 8, 1]])
def test_cbc_says_that_it_took_the_start(hint: list[int]) -> None:
    outcome = solve("pyomo:cbc", covering(), hint=np.array(hint))
    assert outcome.status is Status.OPTIMAL
    assert outcome.hint_accepted is True
    assert "MIPStart provided solution with cost" in outcome.hint_note


def test_cbc_is_not_given_an_infeasible_start() -> None:
    outcome = solve("pyomo:cbc", covering(), hint=np.array([10, 3, 0, 0]))
    assert outcome.objective == pytest.approx(46)
    assert outcome.hint_note == "did not confirm the start"


def test_glpk_takes_no_start_and_says_so() -> None:
    assert not engine("pyomo:glpk").takes_starts
    outcome = solve("pyomo:glpk", covering(), hint=SIX)
    assert outcome.status is Status.OPTIMAL
    assert outcome.hint_accepted is False
    assert outcome.hint_note == "takes no start"


@own
def test_a_start_is_confirmed_in_the_words_of_the_engine(name: str) -> None:
    outcome = solve(name, covering(), hint=SIX)
    assert ("feasible" if name == "cp-sat" else "is the start") in outcome.hint_note
    assert solve(name, covering()).hint_note == ""


@every
@pytest.mark.parametrize("hint", [[0, 0, 0, 0], [70, 0, 60, 0], [10, 3, 0, 0]])
def test_an_infeasible_hint_is_not(name: str, hint: list[int]) -> None:
    outcome = solve(name, covering(), hint=np.array(hint))
    assert outcome.status is Status.OPTIMAL
    assert outcome.objective == pytest.approx(46, abs=1e-4)
    assert outcome.hint_accepted is False


@own
def test_a_partial_hint(name: str) -> None:
    seen: list[float] = []
    outcome = solve(
        name,
        covering(),
        hint=np.array([math.nan, 0, math.nan, 3]),
        on_bound=seen.append,
    )
    assert outcome.objective == pytest.approx(46)
    # The bounds of the model without the hint, not of the restricted one (64 and more).
    assert max([*seen, outcome.bound]) <= 46 + 1e-6


@own
def test_a_hint_of_the_wrong_shape(name: str) -> None:
    with pytest.raises(InputError, match=r"4 columns"):
        solve(name, covering(), hint=np.zeros(3))
    with pytest.raises(InputError, match=r"infinite"):
        solve(name, covering(), hint=np.array([0, 0, 0, math.inf]))


@own
def test_a_hint_without_values_counts_as_rejected(name: str) -> None:
    outcome = solve(name, covering(), hint=np.full(4, math.nan))
    assert outcome.status is Status.OPTIMAL
    assert outcome.hint_accepted is False


@pytest.mark.parametrize("variables", [1, 20])
def test_cp_sat_says_that_figures_are_too_large(variables: int) -> None:
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    model = cp_model.CpModel()
    x = [model.new_int_var(0, 2**60, "") for _ in range(variables)]
    model.add((16 if variables == 1 else 1) * x[0] >= 0)
    with pytest.raises(InputError, match="coarser unit"):
        engine("cp-sat").solve(model)


def test_a_hint_takes_the_place_of_the_one_before() -> None:
    model = covering().cp_sat()
    for hint in (np.zeros(4), SIX):
        outcome = engine("cp-sat").solve(model, hint=hint)
    assert list(model.proto.solution_hint.values) == SIX.tolist()
    assert outcome.hint_accepted is True


@own
def test_incumbents_and_bounds_on_the_way(name: str) -> None:
    milp = market_split(rows=4, columns=30)
    solutions: list[tuple[Array, float | None]] = []
    bounds: list[float] = []
    outcome = solve(
        name,
        milp,
        limits=Limits(time_limit=1.5),
        on_solution=lambda values, bound: solutions.append((values, bound)),
        on_bound=bounds.append,
    )
    assert outcome.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert solutions
    assert all(milp.feasible(values) for values, _ in solutions)
    worth = [milp.objective(values) for values, _ in solutions]
    assert worth == sorted(worth, reverse=True)
    assert outcome.objective == pytest.approx(min(worth))
    assert milp.objective(outcome.values) == pytest.approx(outcome.objective)
    assert bounds
    assert bounds == sorted(set(bounds))
    assert outcome.bound == pytest.approx(bounds[-1])
    assert outcome.bound <= outcome.objective + 1e-6


@every
def test_the_time_limit(name: str) -> None:
    began = time.monotonic()
    outcome = solve(name, market_split(), limits=Limits(time_limit=1))
    assert time.monotonic() - began < 10
    assert outcome.runtime <= 1 * 1.1 + 1
    assert outcome.status in (Status.FEASIBLE, Status.UNKNOWN)


@pytest.mark.parametrize("name", ["highs", "pyomo:highs", "pyomo:glpk", "pyomo:cbc"])
def test_the_time_limit_covers_the_writing_of_a_large_model(name: str) -> None:
    ready(name).load()
    lp = single_machine(jobs=100, horizon=1500)  # 150 000 columns, 2 million entries
    began = time.monotonic()
    outcome = engine(name).solve(lp, limits=Limits(time_limit=1))
    assert time.monotonic() - began < 5  # 1.6 s on a machine with nothing else to do
    assert outcome.status in (Status.FEASIBLE, Status.UNKNOWN)


@pytest.mark.parametrize("name", ["pyomo:glpk", "pyomo:cbc"])
@pytest.mark.parametrize("after", [0.0, 0.5, 2.5])
def test_a_foreign_solver_is_cancelled_while_it_is_written_to(name: str, after: float) -> None:
    ready(name).load()
    lp = single_machine(jobs=100, horizon=1500)
    began = time.monotonic()
    outcome = engine(name).solve(
        lp,
        limits=Limits(time_limit=60),
        should_stop=lambda: time.monotonic() - began > after,
    )
    assert time.monotonic() - began < after + 3
    assert outcome.status in (Status.FEASIBLE, Status.UNKNOWN)


@own
def test_no_time_at_all(name: str) -> None:
    milp = market_split()
    milp.costs, milp.offset = milp.costs * 1.0, -5.0
    outcome = solve(name, milp, limits=Limits(time_limit=0))
    assert outcome.status in (Status.FEASIBLE, Status.UNKNOWN)
    assert outcome.bound is None or outcome.bound <= -5


@stoppable
def test_should_stop_ends_the_run(name: str) -> None:
    ready(name).load()
    model = market_split().written_for(name)
    seen: list[Array] = []
    began = time.monotonic()
    outcome = engine(name).solve(
        model,
        limits=Limits(time_limit=60),
        on_solution=lambda values, _: seen.append(values),
        should_stop=lambda: bool(seen) or time.monotonic() - began > 1,
    )
    assert time.monotonic() - began < 10
    assert not outcome.interrupted
    if name in OWN:
        assert outcome.status is Status.FEASIBLE
        assert outcome.values is not None
        assert market_split().feasible(outcome.values)


@stoppable
def test_stop_before_the_start(name: str) -> None:
    began = time.monotonic()
    outcome = solve(name, market_split(), limits=Limits(time_limit=60), should_stop=lambda: True)
    assert time.monotonic() - began < 10
    assert outcome.status in (Status.FEASIBLE, Status.UNKNOWN)


@own
@pytest.mark.parametrize("where", ["on_solution", "on_bound", "should_stop"])
def test_an_exception_in_a_callback_comes_out(name: str, where: str) -> None:
    def fail(*_: object) -> bool:
        raise ZeroDivisionError(where)

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError, match=where):
        solve(name, market_split(), limits=Limits(time_limit=60), **{where: fail})
    assert time.monotonic() - began < 10


@own
def test_the_same_seed_gives_the_same_answer(name: str) -> None:
    limits = Limits(seed=7, work_limit=0.5)
    milp = market_split(rows=4, columns=30)
    first, second = (solve(name, milp, limits=limits) for _ in range(2))
    assert first.objective == second.objective
    assert first.bound == second.bound
    assert (first.values == second.values).all()


def test_cp_sat_is_reproducible_with_threads() -> None:
    limits = Limits(threads=2, seed=3, work_limit=0.3)
    first, second = (solve("cp-sat", market_split(4, 30), limits=limits) for _ in range(2))
    assert first.objective == second.objective
    assert (first.values == second.values).all()


@own
def test_the_number_of_threads_can_change(name: str) -> None:
    for threads in (1, 2, 1):
        outcome = solve(name, covering(), limits=Limits(threads=threads))
        assert outcome.objective == pytest.approx(46)


@pytest.mark.parametrize("seed", range(30))
def test_all_agree_with_scipy(seed: int) -> None:
    import scipy.optimize

    milp = random_milp(seed)
    third = scipy.optimize.milp(
        milp.costs,
        integrality=np.ones(len(milp.costs), dtype=np.int64),
        bounds=scipy.optimize.Bounds(milp.lower, milp.upper),
        constraints=scipy.optimize.LinearConstraint(milp.matrix, milp.row_lower, milp.row_upper),
        options={"mip_rel_gap": 0},
    )
    for name in OWN[:2] + [other for other in FOREIGN if not engine(other).unavailable()]:
        bounds: list[float] = []
        outcome = solve(name, milp, on_bound=bounds.append)
        if third.status == 2:
            assert outcome.status is Status.INFEASIBLE, name
            continue
        assert third.fun is not None
        assert outcome.status is Status.OPTIMAL, name
        assert milp.feasible(outcome.values), name
        assert outcome.objective == pytest.approx(third.fun + milp.offset, abs=1e-5), name
        assert outcome.bound == pytest.approx(outcome.objective, abs=1e-5), name
        assert max(bounds, default=-math.inf) <= third.fun + milp.offset + 1e-5, name


INTERRUPTED = """
import json, sys
from stagepack.solvers import Limits, engine
from tests.solvers.models import market_split, single_machine

name, when = sys.argv[1:]
solver = engine(name)
solver.load()
model = single_machine() if when == "at once" else market_split().written_for(name)
print("running", flush=True)
outcome = solver.solve(
    model,
    limits=Limits(time_limit=60),
    on_solution=lambda values, bound: print("incumbent", flush=True),
)
print(json.dumps([outcome.interrupted, outcome.status, outcome.objective, outcome.bound]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize(
    ("name", "when"),
    [
        *[(one, "incumbent") for one in OWN],
        ("highs", "at once"),
        ("pyomo:glpk", "running"),
        ("pyomo:cbc", "running"),
        ("pyomo:glpk", "at once"),
        ("pyomo:cbc", "at once"),
    ],
)
def test_ctrl_c_keeps_what_is_known(name: str, when: str) -> None:
    ready(name)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, name, when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    wanted = "incumbent" if when == "incumbent" else "running"
    for line in process.stdout:
        if line.strip() == wanted:
            break
    if wanted == "running":
        time.sleep(0.5)  # into presolve, or into the solver's own process
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert time.monotonic() - sent < 5
    interrupted, status, objective, bound = json.loads(out.splitlines()[-1])
    assert interrupted
    if when == "incumbent":
        assert status == "FEASIBLE"
        assert objective is not None
    assert bound is None or objective is None or bound <= objective


@pytest.mark.parametrize("order", ["ortools, highspy", "highspy, ortools"])
def test_ortools_and_highspy_share_a_process(order: str) -> None:
    first, second = (name.replace("ortools", "cp-sat") for name in order.split(", "))
    names = [name.replace("highspy", "highs") for name in (first, second)]
    script = (
        "from stagepack.solvers import engine\n"
        "from tests.solvers.models import covering\n"
        f"for name in {names}: engine(name).load()\n"
        f"for name in ('cp-sat', 'highs'):\n"
        "    print(round(engine(name).solve(covering().written_for(name)).objective))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.stdout.split() == ["46", "46"], done.stderr


def test_nothing_heavy_is_imported_early() -> None:
    script = (
        "import sys, stagepack.solvers as s\n"
        "[s.engine(name).takes_starts for name in [*s.engines(), 'pyomo:scip']]\n"
        "print({'ortools', 'highspy', 'pyomo', 'scipy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    assert done.stdout.strip() == "set()"
