"""``stagepack plan`` and ``stagepack tune``: plans of whole models."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from stagepack.cli import completion
from stagepack.cli.context import instance_to_ask
from stagepack.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INPUT,
    LIMITS,
    METHOD,
    OUTPUT,
    As,
    AsJson,
    Output,
    Seed,
    Threads,
    end_code,
    limit_option,
    option,
)
from stagepack.cli.output import Form, answer, require_exportable, require_writable
from stagepack.cli.picture import draw, require_drawable, require_pages
from stagepack.cli.terminal.screen import engines_silenced
from stagepack.contracts import Instance, JsonObject
from stagepack.errors import InputError, a, suggest

if TYPE_CHECKING:
    from stagepack.instances.types import PipelinePartition
    from stagepack.planning import ModelPlan

MODEL_HELP = (
    "A network of the catalog (bert-large), an ONNX model, a config.json of Hugging Face, or a "
    "file of layers."
)
PROFILER = "A profiler of one's own"
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help=MODEL_HELP,
        autocompletion=completion.instances,
    ),
]
AROUND = ("cluster", "devices", "bandwidth")
"""Words of the cluster around chips with local memory."""
STEP = ("microbatches", "training")
"""Words of the step of that cluster."""
PROBLEM, HEAD = re.compile(rb'"problem"\s*:\s*"([a-z-]+)"'), 400
"""Where a native file says its kind: in its first bytes."""
Split = Annotated[
    bool, option(METHOD, "Split the backward pass into B and W (zero bubble).", "--split")
]


def plan(
    model: Model,
    context: JsonObject,
    split: Split = False,
    remote: Annotated[
        str | None,
        option(
            METHOD,
            "Every device is this chip with remote memory (gc200): what does not fit runs in "
            "phases.",
            metavar="CHIP",
        ),
    ] = None,
    local: Annotated[
        str | None,
        option(
            METHOD,
            "Every device is this chip with local memory (bm1684x, or FILE.json): operators run "
            "in groups.",
            metavar="CHIP",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        option(METHOD, "Samples of a microbatch; those of the model where left out.", metavar="N"),
    ] = None,
    global_batch: Annotated[
        int | None,
        option(
            METHOD,
            "Samples of a step of a config.json: tensor, pipeline, data and expert degrees, "
            "microbatches and recomputation are chosen, too (--set tensor=8 gives one).",
            metavar="N",
        ),
    ] = None,
    threads: Threads = 1,
    seed: Seed = 0,
    time_limit: Annotated[
        float, limit_option("Seconds of each question, 20 times that in all; 0: no limit.")
    ] = 5.0,
    as_json: AsJson = False,
    output: Output = None,
    plot: Annotated[
        Path | None,
        option(OUTPUT, "Draw the schedule: .png, .svg, .pdf or .html.", metavar="FILE"),
    ] = None,
    html: Annotated[
        Path | None, option(OUTPUT, "Write a page of the plan and its levels.", metavar="FILE")
    ] = None,
    export: Annotated[
        Path | None,
        option(OUTPUT, "Write the stages (--as) or the schedule for other tools.", metavar="FILE"),
    ] = None,
    as_: As = None,
) -> None:
    """Plan a whole model: stages, the schedule of its microbatches, what is inside each stage."""
    from stagepack.planning import plan_model
    from stagepack.planning.search import DRAWN

    require_writable(output, plot, html, export, source=model)
    if global_batch is not None:
        from stagepack.cli.layouts import choose

        others: JsonObject = {
            "--remote": remote,
            "--local": local,
            "--batch": batch,
            "--split": split,
        }
        others |= {"--plot": plot, "--html": html}
        limits = {"threads": threads, "seed": seed, "time_limit": time_limit or None}
        choose(model, context, global_batch, others, limits, output, export, as_, as_json=as_json)
    if batch is not None:
        context = {**context, "batch": batch}
    if plot is not None:
        require_drawable(DRAWN, plot, "--plot")
    if html is not None:
        require_pages()
    given, beside = _model(model, context, local)
    form = Form.of(as_)
    if form.tool and export is None:
        raise InputError("needs a file", field="--as", remedy="name it: --export FILE")
    if form.tool and export is not None and not _only_scheduled(given.kind, form.tool):
        require_exportable(given, export, form, planned=True)
        form = form.beside(given, model)
    with engines_silenced():
        found = plan_model(
            given,
            split=split,
            remote=remote,
            threads=threads,
            seed=seed,
            time_limit=time_limit or None,
            **beside,
        )
    made = bool(found.levels)

    def exported(path: Path) -> None:
        found.export(path, format=form.tool or None, **form.options)

    files = (
        ((lambda path: draw_plan(found, path)), plot if made else None),
        (found.to_html, html),
        (exported, export if made else None),
    )
    failed = answer(found, "the whole plan", output, *files, as_json=as_json)
    ended = end_code(found=bool(found.levels), interrupted=found.interrupted)
    ended = EXIT_INFEASIBLE if found.status == "INFEASIBLE" else ended
    raise typer.Exit(EXIT_INPUT if failed else ended)


def tune(
    context: JsonObject,
    over: Annotated[
        list[str],
        option(
            METHOD,
            "Values of an option: batch=1:64 (all of them), devices=4,8,16; repeatable.",
            metavar="NAME=VALUES",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help=f"{MODEL_HELP} With --command it only estimates, and may be left out.",
            autocompletion=completion.instances,
        ),
    ] = None,
    monotone: Annotated[
        list[str] | None,
        option(
            METHOD,
            "An option of which more is better, until it does not fit: batch in inference (in "
            "training the largest that fits may be slower); repeatable.",
            metavar="NAME",
        ),
    ] = None,
    search: Annotated[
        str,
        option(
            METHOD,
            "bounds, which skips what cannot win; bisection; grid, which has the whole front.",
            metavar="NAME",
        ),
    ] = "bounds",
    gap: Annotated[
        float, option(METHOD, "Skip what can be better by this part at most.", metavar="PART")
    ] = 0.0,
    split: Split = False,
    seed: Seed = 0,
    jobs: Annotated[
        int,
        option(
            METHOD,
            "Plans, or measurements, at a time, each in a process.",
            "-j",
            "--jobs",
            metavar="N",
        ),
    ] = 1,
    command: Annotated[
        str | None,
        option(
            PROFILER,
            "Measure with this command of the shell instead of planning; {batch} stands for a "
            "value. It prints the throughput as its last number, or a line of JSON: "
            '{"throughput": 12.5, "memory": 4096}, or {"profile": "FILE"}, of which a plan is '
            "made, on the devices of the point. An exit code but 0 is an answer, too: it does not "
            "fit.",
            metavar="COMMAND",
        ),
    ] = None,
    repeats: Annotated[
        int,
        option(PROFILER, "Runs of what may be the best; medians are compared.", metavar="N"),
    ] = 1,
    margin: Annotated[
        float,
        option(
            PROFILER,
            "A point may be better than MODEL says, corrected by what was measured, by this part.",
            metavar="PART",
        ),
    ] = 0.2,
    measure_limit: Annotated[
        float | None,
        option(
            PROFILER,
            "End a measurement, with all it started, after so long: it has failed.",
            metavar="SECONDS",
        ),
    ] = None,
    calls: Annotated[int | None, option(PROFILER, "Most measurements.", metavar="N")] = None,
    retry: Annotated[
        bool, option(PROFILER, "Measure again what failed according to the store.", "--retry")
    ] = False,
    time_limit: Annotated[float, limit_option("Seconds of each question; 0: no limit.")] = 5.0,
    total_limit: Annotated[
        float,
        option(
            LIMITS,
            "Seconds in which plans are begun where bounds choose; 0: no limit.",
            metavar="SECONDS",
        ),
    ] = 60.0,
    store: Annotated[
        Path | None,
        option(
            OUTPUT,
            "Keep every point's figures here, and take those of before.",
            metavar="DIR",
        ),
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
    csv: Annotated[
        Path | None, option(OUTPUT, "Write all points' figures.", metavar="FILE")
    ] = None,
    plot: Annotated[
        Path | None, option(OUTPUT, "Draw throughput against memory.", metavar="FILE")
    ] = None,
) -> None:
    """Search for the batch, devices and microbatches with the most samples a second."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from stagepack.planning import tune as run
    from stagepack.planning.tuner.processes import Command
    from stagepack.report.canvas import require_picture

    require_writable(output, csv, plot, source=model or "")
    if plot is not None:
        require_picture(plot)
    if jobs < 1:
        raise InputError(f"{jobs}", field="--jobs", remedy="give at least 1")
    if model is None and command is None:
        raise InputError("is missing", field="MODEL", remedy="name one, or give --command")
    options = dict(map(_values, over))
    if len(options) < len(over):
        raise InputError("names an option twice", field="--over", remedy="give all values at once")
    profiler: JsonObject = {}
    if command is not None:
        profiler = {
            "measure": Command(command, partial(_profile, context)),
            "repeats": repeats,
            "margin": margin,
            "measure_limit": measure_limit,
            "calls": calls,
            "retry": retry,
        }
    with contextlib.ExitStack() as stack:
        stack.enter_context(engines_silenced())
        pooled = jobs > 1 and command is None
        pool = ProcessPoolExecutor(jobs, get_context("spawn")) if pooled else None
        found = run(
            None if model is None else lambda **chosen: _partition(model, {**context, **chosen}),
            options,
            monotone,
            search=search,
            split=split,
            seed=seed,
            time_limit=time_limit or None,
            gap=gap,
            total_limit=total_limit or None,
            store=store,
            executor=None if pool is None else stack.enter_context(pool),
            jobs=jobs,
            **profiler,
        )
    files = (found.to_csv, csv), (found.plot, plot)
    failed = answer(found, "the whole tuning", output, *files, as_json=as_json)
    ended = end_code(found=found.best is not None, interrupted=found.interrupted)
    if not found.interrupted and {one.status for one in found.evaluations} == {"INFEASIBLE"}:
        ended = EXIT_INFEASIBLE
    raise typer.Exit(EXIT_INPUT if failed else ended)


def _profile(context: JsonObject, path: str, chosen: JsonObject) -> PipelinePartition:
    """Return the chain of a profile that a command wrote for a configuration, on its machine."""
    around = {name: chosen[name] for name in (*AROUND, *STEP) if name in chosen}
    return _partition(path, {**context, **around})


def _values(text: str) -> tuple[str, list[Any]]:
    """Return the name and the values of an option: ``batch=1:64``, ``devices=4,8``."""
    name, equals, given = text.partition("=")
    first, colon, last = given.partition(":")
    if name and equals and colon and first.isdecimal() and last.isdecimal():
        return name, list(range(int(first), int(last) + 1))
    if not (name and equals and given):
        raise InputError(
            f"{text[:60]!r} is not NAME=VALUES",
            field="--over",
            remedy="write batch=1:64 or batch=1,2",
        )
    return name.replace("-", "_"), [_value(one) for one in given.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _only_scheduled(kind: str, tool: str) -> bool:
    """Whether a tool takes the schedule of a plan, and no stages of this kind."""
    from stagepack.instances.problem import PROBLEMS
    from stagepack.planning.search import DRAWN

    return tool in PROBLEMS[DRAWN].tools and tool not in PROBLEMS[kind].tools


def _model(model: str, context: JsonObject, local: str | None) -> tuple[Any, JsonObject]:
    """Return what is planned for, and what else is said of it: a cluster of chips, a step."""
    from stagepack.instances import clusters
    from stagepack.planning.search import BOTH_PASSES, GRAPH, GROUPS, KINDS, LOCAL

    kind = _kind(model, context, KINDS, "" if local is None else GROUPS)
    graph = kind == GRAPH and local is not None and _has_operators(model, GROUPS)
    if kind != GROUPS and not graph:
        if local is not None:
            raise InputError(f"does not go with a {kind}", field="--local", remedy="leave it out")
        step = STEP[:1] if kind == GRAPH else ()
        said = {name: value for name, value in context.items() if name in step}
        own = {name: value for name, value in context.items() if name not in step}
        usual = BOTH_PASSES if kind == GRAPH and own.get("training") else {}
        return _named(model, {**usual, **own, "kind": kind}), said
    around = {name: context[name] for name in AROUND if name in context}
    inside = {name: value for name, value in context.items() if name not in (*AROUND, *STEP)}
    if local is not None:
        inside["chip"] = local
        if local not in LOCAL and not local.endswith(".json"):
            raise InputError(
                f"unknown chip {local!r}", field="--local", remedy=suggest(local, LOCAL)
            )
    if not around:
        raise InputError("is missing", field="--cluster", remedy="name one, or give --devices N")
    said = {"cluster": clusters.machine(around)[1]}
    said |= {name: context[name] for name in STEP if name in context}
    return _named(model, {**inside, "kind": GROUPS}), {**said, "graph": graph}


def _partition(model: str, context: JsonObject) -> PipelinePartition:
    """Return a chain on its cluster."""
    from stagepack.planning.search import KIND

    kind = _kind(model, context, (KIND,), "")
    return cast("PipelinePartition", _named(model, {**context, "kind": kind}))


def _kind(model: str, context: JsonObject, known: Sequence[str], usual: str) -> str:
    """Return the kind of a model: as is said, as its name or its file says, or the usual one."""
    said = context.get("kind")
    own = _own_kind(model) or usual
    kind: str = said or own or known[0]
    if kind in known:
        return kind
    remedy = f"give {' or '.join(known)}"
    if said:
        raise InputError(f"plans are not made of {a(kind)}", field="--kind", remedy=remedy)
    raise InputError(f"is {a(kind)}, of which no plan is made here", file=model, remedy=remedy)


def _own_kind(model: str) -> str:
    """Return the kind that a name of the catalog or a native file says; "" for none."""
    from stagepack import catalog
    from stagepack.kinds import KINDS, by_family

    if Path(model).is_file():
        with Path(model).open("rb") as stream:
            written = PROBLEM.search(stream.read(HEAD))
        kind = written[1].decode() if written else ""
        return kind if kind in KINDS else ""
    named = by_family(model)
    return next((entry.kind for entry in catalog.entries() if entry.name == named), "")


def _has_operators(model: str, kind: str) -> bool:
    """Whether a file may hold operators with shapes, or the catalog has such a network."""
    from stagepack import catalog

    own = _own_kind(model)
    known = {entry.name.partition("/")[2] for entry in catalog.entries(kind)}
    named = bool(known.intersection((model, model.replace("-", ""))))
    return own == kind or (not own and (Path(model).is_file() or named))


def _named(model: str, context: JsonObject) -> Instance:
    """Return the instance of a kind; networks of the catalog may be called by themselves."""
    from stagepack import catalog
    from stagepack.kinds import KINDS

    kind = context["kind"]
    family = f"{KINDS[kind].family}/"
    known = {entry.name for entry in catalog.entries(kind)}
    written = [f"{family}{name}" for name in (model, model.replace("-", ""))]
    found = [] if Path(model).exists() else [name for name in written if name in known]
    if not found and "/" not in model and "." not in model and not Path(model).exists():
        networks = sorted(name.removeprefix(family) for name in known)
        what = f"no such file, nor a {kind} of the catalog"
        raise InputError(what, file=model, remedy=suggest(model, networks))
    return instance_to_ask(found[0] if found else model, context)


def plan_in(source: str | Path) -> ModelPlan | None:
    """Return the plan that a file holds; None for other files and names."""
    from stagepack.planning.document import is_plan, read_plan

    return read_plan(source) if is_plan(source) else None


def draw_plan(found: ModelPlan, path: Path) -> None:
    """Write the picture of a plan: that of its schedule."""
    if not found.levels:
        raise InputError(
            "holds no schedule", field="plan", remedy=found.reason or "give one that has levels"
        )
    level = found.level("schedule")
    draw(level.instance, level.result.solution, path)
