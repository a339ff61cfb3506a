"""Runs that their callers end, from other threads, and what their functions raise."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import stagepack as sp
from stagepack.stopping import heeding, stop_asked

HARD: dict[str, tuple[str, dict[str, Any]]] = {
    "pipeline": ("pipeline/random/heterogeneous", {"layers": 3000, "devices": 16}),
    "packing": ("packing/random/powerlaw", {"buffers": 5000}),
    "schedule": ("schedule/zero-bubble/measured-8x32", {}),
    "phases": ("phases/random/heterogeneous", {"layers": 60}),
    "groups": ("groups/random/blocks", {"operators": 200}),
    "graph": ("graph/random/branchy", {"operators": 2000, "devices": 8}),
}


def hard(family: str) -> Any:
    name, parameters = HARD[family]
    return sp.load(name, **parameters)


def later(seconds: float) -> threading.Event:
    """Return what is set after so many seconds."""
    event = threading.Event()
    timer = threading.Timer(seconds, event.set)
    timer.daemon = True
    timer.start()
    return event


@pytest.mark.parametrize("family", HARD)
def test_every_kind_ends_when_asked(family: str) -> None:
    found = sp.solve(hard(family), time_limit=120, stop=later(0.3))
    assert found.termination in ("INTERRUPTED", "PROVED", "FINISHED")
    assert found.runtime < 60
    if found.solution is not None:
        assert hard(family).check(found.solution) == ()


def test_who_has_asked_before_gets_an_answer() -> None:
    event = threading.Event()
    event.set()
    found = sp.solve(hard("graph"), stop=event)
    assert found.termination == "INTERRUPTED"
    assert sp.solve(hard("graph"), stop=lambda: True).termination == "INTERRUPTED"
    assert sp.pack([1, 2], [0, 0], [1, 1], stop=event)[1].options["method"] == "auto"


@pytest.mark.parametrize("given", [3, "yes", threading.Event])
def test_what_says_nothing_is_refused(given: Any) -> None:
    with pytest.raises(sp.InputError, match="stop: "):
        sp.solve(hard("schedule"), stop=given)


@pytest.mark.parametrize("family", HARD)
@pytest.mark.parametrize("which", ["on_incumbent", "stop"])
def test_exceptions_keep_the_incumbent(family: str, which: str) -> None:
    told = []

    def fails(*_: object) -> bool:
        told.append(1)
        if which == "on_incumbent" or len(told) > 3:
            raise LookupError("enough")
        return False

    callbacks: dict[str, Any] = {which: fails}
    with pytest.raises(LookupError, match="enough") as caught:
        sp.solve(hard(family), time_limit=60, **callbacks)
    kept = caught.value.partial_result  # type: ignore[attr-defined]
    assert kept.termination in ("INTERRUPTED", "PROVED", "FINISHED")
    if which == "on_incumbent":
        assert hard(family).check(kept.solution) == ()


def test_threads_do_not_end_each_other() -> None:
    instances = [hard("graph"), hard("graph")]
    never = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        ended = pool.submit(sp.solve, instances[0], time_limit=60, stop=later(0.2))
        other = pool.submit(sp.solve, instances[1], time_limit=1, stop=never)
        assert ended.result().termination in ("INTERRUPTED", "PROVED")
        assert other.result().termination in ("TIME_LIMIT", "PROVED", "FINISHED")
    assert not stop_asked()


def test_a_task_that_is_cancelled_ends_its_run() -> None:
    async def main() -> sp.Result[Any]:
        loop, stop = asyncio.get_running_loop(), threading.Event()
        run = partial(sp.solve, hard("graph"), time_limit=60, stop=stop)
        future = loop.run_in_executor(None, run)
        try:
            await asyncio.wait_for(asyncio.shield(future), 0.3)
        except TimeoutError:
            stop.set()
        return await future

    found = asyncio.run(main())
    assert found.termination in ("INTERRUPTED", "PROVED")


def test_blocks_within_blocks_hear_both() -> None:
    outer, inner = threading.Event(), threading.Event()
    with heeding(outer):
        with heeding(inner):
            assert not stop_asked()
            outer.set()
            assert stop_asked()
        outer.clear()
        inner.set()
        assert not stop_asked()


def test_what_makes_several_solves_ends_when_asked() -> None:
    event = threading.Event()
    event.set()
    chain = sp.load("pipeline/random/heterogeneous", layers=60)
    plan = sp.plan_model(chain, microbatches=64, stop=event)
    assert plan.interrupted
    assert sp.pareto(chain, stop=event).complete is False
    assert sp.explain(chain, stop=event).changes == ()
    held = sp.solve(chain, "greedy").solution
    assert sp.recut(chain, held, stop=event).best.termination == "INTERRUPTED"
    tuned = sp.tune(lambda devices: chain, {"devices": [1, 2]}, stop=event)
    assert tuned.interrupted
    assert tuned.evaluations == ()
    whole = sp.plan_model(sp.load("pipeline/gpt2-small"), microbatches=8)
    assert len(sp.explain_plan(whole, stop=event).changes) <= 1
    packing = sp.load("packing/random/powerlaw", buffers=50, capacity=10**9)
    name = packing.buffer_id(0)
    began = time.monotonic()
    assert sp.choose_depths(packing, {name: list(range(1, 60))}, stop=event).solves <= 2
    assert time.monotonic() - began < 30
