"""Arguments of a wrong type: public functions refuse them by name, and never fail within."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.compare.workers import Run
from stagepack.instances.profile import LayerProfile, ModelProfile

CHAIN = sp.PipelinePartition.from_arrays([3, 1, 4, 1, 5], devices=2)
GRAPH = sp.GraphPartition.from_arrays(
    [3, 1, 4], accelerators=2, producer=range(2), consumers=[1, 2], consumer_ptr=range(3),
    traffic=[2, 3],
)  # fmt: skip
PHASES = sp.load("phases/six-layers")
GROUPS = sp.load("groups/examples/balanced-rows")
PACKING = sp.LmemPacking.from_arrays([4, 6, 4], [0, 1, 2], [2, 3, 4])
PROFILE = ModelProfile(
    layers=tuple(
        LayerProfile(name=one, forward=4, inputs=(one,), outputs=(after,))
        for one, after in ("ab", "bc", "cd")
    ),
    tensors=dict.fromkeys("abcd", 8),
    name="net",
)

LLAMA = Path(__file__).parents[1] / "examples" / "llama.json"

WRONG = [
    None, 4, -1, 4.5, float("nan"), True, "4", "3GiB", b"x", "", [], [1], [None], {}, {"a": 1}, (),
    object(), CHAIN, GRAPH, int, np.int64(3), Path("nowhere"), 2**70,
]  # fmt: skip


def made(devices: int) -> sp.PipelinePartition:
    return CHAIN.replace(cluster=sp.Cluster.uniform(devices))


def calls(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Return arguments with which each public function works, or refuses their content."""
    file, answer = folder / "chain.json", folder / "answer.json"
    solved = sp.solve(CHAIN)
    sp.write(CHAIN, file)
    sp.write_solution(CHAIN, solved, answer)
    every: tuple[Any, ...] = (CHAIN, GRAPH, PHASES, GROUPS, PACKING)
    chain, graph, phases, groups, packing = ((one, sp.solve(one)) for one in every)
    return {
        "chain": graph, "check_proof": (PACKING, file), "check_result": chain,
        "check_group_program": (GROUPS, sp.group_program(*groups)),
        "choose_depths": (PACKING.replace(capacity=20), {"0": [0, 1]}),
        "merge_programs": ([PACKING, PACKING],), "split_programs": ([PACKING], packing[1]),
        "check_program": (PHASES, sp.program(*phases)),
        "entries": (), "estimate": chain, "explain": (CHAIN,), "group_program": groups,
        "explain_plan": (sp.plan_model(CHAIN, microbatches=2),),
        "load": ("pipeline/vgg-16",), "measure": packing, "methods": (CHAIN,),
        "pack": ([4, 4], [0, 1], [2, 3]), "pareto": (CHAIN,), "partition_dot": graph,
        "partition_graphml": graph, "plan": phases, "plan_model": (PROFILE, "generic-2"),
        "plan_serving": (LLAMA, "4xh100"),
        "plot": chain, "program": phases, "prove": packing, "read": (file,), "read_all": (file,),
        "read_measured": (file,), "read_plan": (file,), "read_result": (answer, CHAIN),
        "read_solution": (answer,), "read_store": (file,), "read_suite": (file,),
        "read_tuning": (file,), "report": (solved, folder / "page.html"),
        "recut": chain, "schema": ("lmem-packing",), "solve": (CHAIN,), "suite": (),
        "tune": (made, {"devices": [2, 3]}), "write": (CHAIN, folder / "again.json"),
        "write_solution": (*chain, folder / "solution.json"),
    }  # fmt: skip


ELSEWHERE = {
    "build_stages", "compile_partitioned_model", "measure_plan", "pipe_model", "profile_model",
    "run_pipeline", "tied_gradients",  # need PyTorch
    "compare",  # below: it runs processes
    "plan_layout",  # tests/planning/layouts: it takes samples of a step by name
    "formats", "versions",  # take nothing
}  # fmt: skip


NAMES = sorted({name for name in dir(sp) if inspect.isfunction(getattr(sp, name))} - ELSEWHERE)


def refused(function: Callable[..., object], *arguments: Any, **options: Any) -> bool:
    """Return whether a call was refused by an `InputError`; any other exception is a failure."""
    try:
        function(*arguments, **options)
    except sp.InputError:
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_is_refused_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, function = calls(tmp_path)[name], getattr(sp, name)
    parameters = [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.kind is not one.VAR_KEYWORD
    ]
    limits = {"time_limit": 0.1} if "time_limit" in parameters else {}
    for at, parameter in enumerate(parameters):
        for wrong in WRONG:
            options: dict[str, Any] = dict(limits)
            given = list(arguments)
            if at < len(given):
                given[at] = wrong
            else:
                options[parameter] = wrong
            if (parameter, wrong) == ("time_limit", None):
                continue  # as long as it takes
            if wrong is int and parameter.startswith("on_"):
                continue  # it can be called
            refused(function, *given, **options)


USED = {("time_limit", 4.5), ("wall_limit", 4.5), ("seeds", b"x")}
"""What a comparison takes."""


def test_a_comparison_refuses_what_it_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "in_children", lambda *_: None)
    for parameter in inspect.signature(sp.compare).parameters:
        if parameter in ("options", "on_start", "on_result", "store"):
            continue
        for wrong in [object(), 4.5, float("nan"), b"x", [None], {"a": 1}, -1]:
            given = {"instances": [CHAIN], "methods": ["dp"], "time_limit": 1, parameter: wrong}
            if any(parameter == name and wrong == one for name, one in USED):
                continue
            assert refused(sp.compare, **given), (parameter, wrong)


def test_memory_is_told_in_words_or_bytes() -> None:
    for limit in (4 * 2**30, "4GiB"):
        assert sp.compare([CHAIN], "dp", memory_limit=limit, jobs=1).rows
    for wrong in ("much", "", True, 0):
        with pytest.raises(sp.InputError, match="memory_limit: "):
            sp.compare([CHAIN], "dp", memory_limit=wrong)


def test_a_number_is_no_cluster() -> None:
    with pytest.raises(sp.InputError, match=r"cluster: 4 is no cluster; give Cluster.uniform\(4\)"):
        sp.plan_model(PROFILE, 4)  # type: ignore[arg-type]


def test_a_function_that_tune_calls_and_that_fails_is_named() -> None:
    def fails(devices: int) -> Any:
        if devices == 2:
            raise ZeroDivisionError("no devices left")
        return made(devices) if devices == 3 else None

    options = {"devices": [3, 2]}
    wrong = r"make\(devices=2\): raised ZeroDivisionError: no devices left"
    with pytest.raises(sp.InputError, match=wrong) as caught:
        sp.tune(fails, options, search="grid", time_limit=0.5)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    found = getattr(caught.value, "partial_result")  # noqa: B009  declared by no class
    assert [one.options for one in found.evaluations] == [{"devices": 3}]
    with pytest.raises(sp.InputError, match=r"make\(devices=4\): .*no instance"):
        sp.tune(fails, {"devices": [4]})
