"""``stagepack solve``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from stagepack import files
from stagepack.cli import completion
from stagepack.cli.context import CHANGED, instance_of
from stagepack.cli.options import (
    EXIT_INPUT,
    EXIT_UNVERIFIED,
    FREEDOM,
    LIMITS,
    METHOD,
    OUTPUT,
    As,
    AsJson,
    Instance,
    Output,
    Threads,
    engine_option,
    exit_code,
    limit_option,
    method_option,
    option,
)
from stagepack.cli.output import (
    Form,
    Rescue,
    apart,
    export_solution,
    require_exportable,
    require_writable,
)
from stagepack.cli.terminal.screen import (
    Solving,
    command_line,
    complain,
    engines_silenced,
    print_json,
    print_parts,
    write_json,
)
from stagepack.contracts import Instance as Problem
from stagepack.contracts import JsonObject, Solution
from stagepack.errors import InputError
from stagepack.instances.problem import PROBLEMS
from stagepack.interrupts import Interrupts
from stagepack.result import Result, Status

if TYPE_CHECKING:
    from stagepack.report.table import Account


def solve(
    instance: Instance,
    context: JsonObject,
    method: Annotated[str, method_option("See stagepack methods.")] = "auto",
    engine: Annotated[str | None, engine_option("highs, cp-sat, pyomo:NAME.")] = None,
    warm_start: Annotated[
        str,
        option(
            METHOD,
            "auto, none, a method's name, or a solution file.",
            metavar="START",
            autocompletion=completion.warm_starts,
        ),
    ] = "auto",
    threads: Threads = 1,
    seed: Annotated[
        int, option(METHOD, "Seed of the engine, and of what is drawn at random.", metavar="N")
    ] = 0,
    time_limit: Annotated[float, limit_option("Seconds of solving; 0: no limit.")] = 10.0,
    target: Annotated[
        float | None, option(LIMITS, "At an objective this good.", metavar="VALUE")
    ] = None,
    gap: Annotated[
        float, option(LIMITS, "At this relative gap: 0.01 is 1 %.", metavar="SHARE")
    ] = 0.0,
    deterministic: Annotated[
        bool,
        option(
            LIMITS,
            "Limit by work, not by the clock: limited runs repeat exactly.",
            "--deterministic",
        ),
    ] = False,
    tolerance: Annotated[
        str | None,
        option(
            FREEDOM,
            "With --previous: the fewest bytes move of a cut whose objective is worse than the "
            "best by no more than this: 5%, or 0.05.",
            metavar="SHARE",
        ),
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
    plot: Annotated[
        Path | None,
        option(
            OUTPUT,
            "Draw the solution: .png, .svg, .pdf, or .html, which is interactive.",
            metavar="FILE",
        ),
    ] = None,
    trace: Annotated[
        Path | None, option(OUTPUT, "Write incumbents and bounds as CSV.", metavar="FILE")
    ] = None,
    export: Annotated[
        Path | None,
        option(
            OUTPUT,
            "Write the solution for other tools: offsets as MiniMalloc's CSV, schedules as "
            "PyTorch's, phases and layer groups as JSON programs, graphs as .dot or .graphml.",
            "--export",
            "--offsets",
            metavar="FILE",
        ),
    ] = None,
    as_: As = None,
    proof: Annotated[
        Path | None,
        option(
            OUTPUT,
            "Write a proof of the bound, or that nothing is feasible, for check --proof. What is "
            "left of the time is spent on it.",
            metavar="FILE",
        ),
    ] = None,
    communication: Annotated[
        bool,
        option(OUTPUT, "Export sends and receives of a schedule, too.", "--communication"),
    ] = False,
    waits: Annotated[
        bool,
        option(
            OUTPUT,
            "With --communication: export the waits for what is sent and received, too; PyTorch "
            "asks for them since 2.15.",
            "--waits",
        ),
    ] = False,
    backward: Annotated[
        bool,
        option(
            OUTPUT,
            "Export backward passes in a schedule of inference, too; PyTorch asks for them.",
            "--backward",
        ),
    ] = False,
) -> None:
    """Solve one instance; the answer is checked and carries a proved bound."""
    require_writable(output, plot, trace, export, proof, source=instance)
    form = Form.of(as_, communication=communication or waits, waits=waits, backward=backward)
    if export is None and (form.tool or form.options):
        said = "--as" if form.tool else f"--{next(iter(form.options))}"
        raise InputError("needs a file", field=said, remedy="name it: --export FILE")
    problem = instance_of(instance, context)
    form = form.beside(problem, instance)
    if export is not None:
        require_exportable(problem, export, form)
    if plot is not None:
        from stagepack.cli.picture import require_drawable

        require_drawable(problem.kind, plot, "--plot")
    start = _start(problem, warm_start)
    near = _tolerance(problem, context, tolerance)
    asked = {"deterministic": deterministic, "proof": proof is not None}
    options = {name: True for name, wanted in asked.items() if wanted}
    how: JsonObject = {
        "engine": engine,
        "time_limit": time_limit or None,
        "target": target,
        "gap": gap,
        "threads": threads,
        "seed": seed,
        "options": options or None,
    }
    problem, best, result = _nearly(problem, method, start, near, how)
    document: JsonObject = {}
    output = apart(output, as_json=as_json)
    rescue = Rescue()
    if output is not None or as_json:  # a million offsets take a while to write down
        document = {**result.to_dict(), **_beside(problem, result, best)}
    rescue.attempt(lambda path: write_json(path, document), output)
    rescue.attempt(result.trace.to_csv, trace)
    proved = proof is None or _prove(result, proof, rescue)
    if result.solution is not None:
        rescue.attempt(lambda path: export_solution(problem, result.solution, path, form), export)
        if plot is not None:
            from stagepack.cli.picture import draw

            rescue.attempt(lambda path: draw(problem, result.solution, path), plot)
    if as_json or rescue:
        rescue.tell("the whole result")
        print_json(document or {**result.to_dict(), **_beside(problem, result, best)})
    else:
        from stagepack.report.shown import contents

        written = output, plot, trace, export, proof
        if result is not best:
            print_parts([_of_best(problem, best)], outputs=written)
        print_parts(contents(result.of(problem)), outputs=written)
        saved = _freed(problem, result, time_limit, deterministic, seed=seed, threads=threads)
        print_parts(saved, outputs=written)
    unproved = 0 if proved else EXIT_UNVERIFIED
    raise typer.Exit(EXIT_INPUT if rescue else exit_code(result) or unproved)


def _nearly(
    problem: Any, method: str, start: Solution | str, near: float | None, how: JsonObject
) -> tuple[Problem, Result[Solution], Result[Solution]]:
    """Return what is asked at last, the best answer, and that which moves little beside it."""
    best = _solved(problem, method, start, how)
    if near is None or best.solution is None:
        return problem, best, best
    from stagepack.tradeoffs.moves import nearly

    question = nearly(problem, best, near)
    return question, best, _solved(question, method, best.solution, how)


def _solved(
    problem: Problem, method: str, start: Solution | str, how: JsonObject
) -> Result[Solution]:
    """Return the result of a run that is watched, which takes some options."""
    from stagepack.solve import solve as run

    with engines_silenced(), Interrupts(last=True), Solving(problem.name, method) as search:
        return run(
            problem,
            method,
            warm_start=start,
            on_incumbent=search.incumbent,
            on_bound=search.bound,
            **how,
        )


def _tolerance(problem: Problem, context: JsonObject, said: str | None) -> float | None:
    """Return how near the best a cut has to be of which the fewest bytes move; None: any other."""
    if said is None and context.get(f"{CHANGED}previous") is None:
        return None
    old = getattr(problem, "previous", None)
    cut = hasattr(problem, "from_previous") and problem.objective != "moves"
    if said is not None and (old is None or not cut):
        why = "it is of a previous cut of a chain, and an objective other than moves"
        raise InputError(why, field="tolerance", remedy="give --previous FILE, or leave it out")
    from stagepack.tradeoffs.moves import share_of

    return share_of(said or "0") if cut else None


def _of_best(problem: Problem, best: Result[Solution]) -> Account:
    """Return what the best cut is worth, before the one for which the fewest bytes move."""
    from stagepack.report.table import Account
    from stagepack.report.view import view
    from stagepack.tradeoffs.moves import allowed

    assert best.problem is not None
    worth, moved = view(problem.kind).worth, cast("Any", problem)
    at_most = worth(best.problem, allowed(moved))
    said = [
        (f"Best {best.objective_name}", f"{worth(best.problem, best.objective)} ({best.status})"),
        ("Allowed", f"{at_most}, for which the fewest bytes move:"),
    ]
    return Account(said)


def _beside(problem: Problem, result: Result[Solution], best: Result[Solution]) -> JsonObject:
    """Return what a file of a result says besides."""
    found: JsonObject = {"command": command_line()}
    devices = getattr(getattr(problem, "cluster", None), "devices", ())
    if any(device.name for device in devices):
        found["device_names"] = [device.name for device in devices]
    if result is not best:
        found["best"] = best.to_dict()
    return found


def _start(problem: Problem, said: str) -> Solution | str:
    """Return the solution of a file that `said` names, or what it says."""
    if any(mark in said for mark in "/.|"):  # no name of a method has any
        from stagepack.formats import solutions

        found: Solution = solutions.read_solution(said, problem)
        return found
    return said


def _freed(
    instance: Problem, result: Result[Solution], time_limit: float, deterministic: bool, **how: int
) -> list[Account | str]:
    """Return what options that only allow more would save."""
    if not PROBLEMS[instance.kind].frees:
        return []
    from stagepack.report.table import Account
    from stagepack.report.view import view
    from stagepack.tradeoffs.changes import freed, share

    options = {"deterministic": deterministic}
    with engines_silenced(), Solving(instance.name, "what options would save"):
        found = freed(instance, result, time_limit or None, options=options, **how)
    worth = view(instance.kind).worth
    said = [
        (f"With {option}", f"{worth(instance, gain.result.objective)}, {saved} less")
        for option, gain in found
        for saved in [share(gain.saved, result.objective)]
    ]
    return ["", Account(said)] if said else []


def _prove(result: Result[Solution], path: Path, rescue: Rescue) -> bool:
    """Write the proof of a result's bound, which its run has looked for; return whether it has."""
    from stagepack.claims import prove

    instance = result.problem
    if instance is None or (result.bound is None and result.status is not Status.INFEASIBLE):
        complain("no proof is written: there is no bound")
        return False
    with Solving(instance.name, "proving"):
        found = prove(instance, result)
    if found is None:
        complain("no proof is written: the bound rests on a search or an engine; try a longer -t")
        return False
    rescue.attempt(lambda file: files.write(file, json.dumps(found) + "\n"), path)
    return True
