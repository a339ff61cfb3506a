"""A profiler of one's own: asked as rarely as possible, and whatever it does is an answer."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.planning.claims import check_tuning
from stagepack.planning.document import read_tuning
from tests.cli.shell import run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="functions of tests are forked")

Measure = Callable[..., Any]
OPTIONS: dict[str, Any] = {"batch": range(1, 65), "devices": [1, 2, 4]}


def simulated(largest: dict[int, int], speed: dict[int, float]) -> Measure:
    """Return a profiler that fits so many samples on so many devices, as fast as these."""

    def measure(batch: int, devices: int) -> float:
        if batch > largest[devices]:
            raise MemoryError(f"no room for {batch}")
        return 100 * batch / (5 + batch / speed[devices])

    return measure


def chain(batch: int = 1, devices: int = 1) -> sp.PipelinePartition:
    """Return a model of which a device holds about 20 samples."""
    return sp.PipelinePartition.from_arrays(
        [4 + batch] * 8, devices=devices, microbatches=8, temporary=[3 * batch] * 8, capacity=60
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("modelled", [False, True])
def test_the_best_of_the_grid_is_found_in_fewer_calls_than_bisection(
    seed: int, modelled: bool
) -> None:
    draw = random.Random(seed)
    largest = {devices: draw.choice([0, 1, draw.randrange(64), 64]) for devices in (1, 2, 4)}
    measure = simulated(largest, {devices: devices * draw.uniform(0.7, 1) for devices in (1, 2, 4)})
    values = [
        (measure(batch, devices), batch, devices)
        for batch, devices in itertools.product(OPTIONS["batch"], OPTIONS["devices"])
        if batch <= largest[devices]
    ]
    found = sp.tune(
        chain if modelled else None, OPTIONS, "batch", measure=measure, margin=0.5
    )  # fmt: skip
    assert found.measured is not None
    assert found.measured.calls == len(found.evaluations) <= 3 * 7
    skipped = sum(found.measured.skipped.values())
    assert skipped + len(found.evaluations) == found.configurations
    assert "open" not in found.measured.skipped
    if not values:
        assert found.best is None
        assert "no room for 1" in {one.reason.partition(": ")[2] for one in found.evaluations}
        assert "MemoryError: no room" in str(found)
        assert "nothing that was measured fits" in str(found)
    else:
        assert found.best is not None
        assert found.best.throughput == pytest.approx(max(values)[0])
        assert found.best.status == "MEASURED"
        assert found.best.bound is None, "nothing is proved"


@pytest.mark.parametrize("largest", [0, 1, 2, 5])
def test_the_first_and_the_last_value_are_asked_for(largest: int) -> None:
    measure = simulated(dict.fromkeys((1, 2, 4), largest), {1: 1.0, 2: 1.0, 4: 1.0})
    for search in ("bounds", "bisection", "grid"):
        found = sp.tune(
            None, {"batch": range(1, 6), "devices": [1]}, "batch", measure=measure, search=search
        )
        assert (found.best.options["batch"] if found.best else 0) == largest


def test_models_are_made_for_what_is_looked_at() -> None:
    made = []

    def make(batch: int, devices: int) -> sp.PipelinePartition:
        made.append((batch, devices))
        return chain(batch, devices)

    found = sp.tune(make, OPTIONS, "batch")
    assert found.best is not None
    assert len(set(made)) < found.configurations / 4
    made.clear()

    def measure(batch: int, devices: int) -> float:
        if batch > 20:
            raise MemoryError
        return 0.4 * batch * devices / (4 + batch)

    measured = sp.tune(make, OPTIONS, "batch", measure=measure)
    assert measured.best is not None
    assert measured.best.options == {"batch": 20, "devices": 4}
    assert len(set(made)) < found.configurations / 4
    assert measured.measured is not None
    assert measured.measured.skipped["margin"] > 0
    assert measured.best.estimate is not None
    assert measured.measured.calls <= 3, "the model guesses where it ends"


def test_whatever_a_profiler_does_is_an_answer() -> None:
    def measure(way: str) -> Any:
        if way == "raises":
            raise RuntimeError("CUDA out of memory")
        if way == "exits":
            sys.exit(4)
        if way == "crashes":
            print("last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "hangs":
            time.sleep(100)
        bad = {"none": None, "nan": float("nan"), "text": "fast", "zero": 0, "true": True}
        return {**bad, "map": {"latency": 3}, "good": {"throughput": 7, "memory": 1 << 20}}[way]

    ways = ["raises", "exits", "crashes", "hangs", "none", "nan", "text", "zero", "true", "map"]
    found = sp.tune(None, {"way": [*ways, "good"]}, measure=measure, measure_limit=1)
    told = {one.options["way"]: one for one in found.evaluations}
    assert found.best is told["good"]
    assert (found.best.throughput, found.best.memory) == (7, 1 << 20)
    assert told["raises"].reason == "RuntimeError: CUDA out of memory"
    assert "Traceback" in told["raises"].log
    assert told["exits"].reason == "exit code 4"
    assert told["crashes"].reason == "killed by SIGKILL, perhaps for want of memory: last words"
    assert told["hangs"].reason == "was ended after 1 s, the limit of a measurement"
    assert told["map"].reason == "returned no throughput, but latency"
    for way in ("none", "nan", "text", "zero", "true"):
        assert "which is no throughput above 0" in told[way].reason
    assert all(one.status == "FAILED" for one in found.evaluations if one is not found.best)


def test_a_profile_is_planned() -> None:
    def measure(batch: int, devices: int) -> sp.PipelinePartition:
        return chain(batch, devices)

    options = {"batch": [4, 20, 21], "devices": [2]}
    found = sp.tune(None, options, "batch", measure=measure, search="grid")
    planned = sp.tune(chain, options, "batch", search="grid")
    assert found.best is not None
    assert planned.best is not None
    assert found.best.options == planned.best.options == {"batch": 20, "devices": 2}
    assert found.best.throughput == planned.best.throughput
    assert (found.best.cycles, found.best.status) == (planned.best.cycles, planned.best.status)
    assert "largest device has 60" in found.evaluations[2].reason


def test_what_may_be_the_best_is_measured_again() -> None:
    clock = itertools.count()

    def start() -> int:
        return time.monotonic_ns() + next(clock)

    def measure(batch: int) -> float:
        return 100 * batch / (5 + batch) * random.Random(start()).uniform(0.97, 1.03)

    found = sp.tune(None, {"batch": [1, 30, 31, 32]}, measure=measure, search="grid", repeats=3)
    runs = {one.options["batch"]: len(one.values) for one in found.evaluations}
    assert runs[1] == 1, "it cannot be the best"
    assert found.best is not None
    assert len(found.best.values) == 3
    assert found.best.throughput == sorted(found.best.values)[1]
    assert found.best.spread is not None
    assert found.best.spread < 0.07
    assert "median of 3" in str(found)


def test_what_fails_when_it_is_measured_again_has_failed(tmp_path: Path) -> None:
    def measure(batch: int) -> float:
        seen = tmp_path / "seen"
        if batch == 8:
            if seen.exists():
                raise MemoryError("this time")
            seen.touch()
        return float(batch)

    found = sp.tune(None, {"batch": range(1, 9)}, "batch", measure=measure, repeats=2)
    assert found.best is not None
    assert found.best.options == {"batch": 7}
    last = next(one for one in found.evaluations if one.options["batch"] == 8)
    assert last.reason == "failed in one of 2 runs: MemoryError: this time"


def test_measurements_are_kept_and_failures_asked_for_again_on_demand(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    store = tmp_path / "store"

    def measure(batch: int) -> float:
        with calls.open("a") as stream:
            stream.write(f"{batch}\n")
        if batch == 6:
            time.sleep(30)
        if batch > 4:
            raise MemoryError("no")
        return float(batch)

    def asked(**how: Any) -> list[int]:
        calls.write_text("")
        given: dict[str, Any] = {"measure": measure, "store": store, "measure_limit": 1.0, **how}
        found = sp.tune(None, {"batch": range(1, 7)}, search="grid", **given)
        assert found.best is not None
        assert found.best.options == {"batch": 4}
        return list(map(int, calls.read_text().split()))

    assert asked(calls=4) == [1, 2, 3, 4]
    assert asked() == [5, 6]
    assert asked() == []
    assert asked(measure_limit=1.5) == [6], "it has more time now"
    assert asked(measure_limit=1.2) == []
    assert asked(retry=True, measure_limit=1.2) == [5, 6]
    assert asked(repeats=2) == [4]


def test_the_most_measurements_are_kept_to() -> None:
    measure = simulated({1: 20, 2: 40, 4: 64}, {1: 1, 2: 2, 4: 4})
    found = sp.tune(None, OPTIONS, "batch", measure=measure, calls=4, jobs=2)
    assert found.measured is not None
    assert found.measured.calls == len(found.evaluations) == 4
    assert found.measured.skipped["open"] > 0
    assert "left open" in str(found)


def test_several_measurements_at_a_time_find_the_same() -> None:
    measure = simulated({1: 20, 2: 40, 4: 64}, {1: 1, 2: 2, 4: 4})
    alone = sp.tune(None, OPTIONS, "batch", measure=measure)
    together = sp.tune(None, OPTIONS, "batch", measure=measure, jobs=3)
    assert alone.best is not None
    assert together.best is not None
    assert alone.best.options == together.best.options == {"batch": 64, "devices": 4}


def test_two_monotone_options_share_what_fits() -> None:
    def measure(microbatches: int, batch: int) -> float:
        if microbatches * batch > 40:
            raise MemoryError
        return microbatches / (microbatches + 3) * batch / (batch + 4)

    options = {"microbatches": [2, 4, 8, 16], "batch": range(1, 33)}
    whole = {
        (many, batch): measure(many, batch)
        for many, batch in itertools.product(*options.values())
        if many * batch <= 40
    }
    found = sp.tune(None, options, ["microbatches", "batch"], measure=measure)
    assert found.best is not None
    assert tuple(found.best.options.values()) == max(whole, key=whole.__getitem__)
    assert len(found.evaluations) < found.bisection


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"measure": 3}, "measure"),
        ({"measure": len, "margin": -1}, "margin"),
        ({"measure": len, "repeats": 0}, "repeats"),
        ({"measure": len, "measure_limit": 0}, "measure_limit"),
        ({"measure": len, "calls": 0}, "calls"),
        ({"measure": len, "executor": contextlib}, "executor"),
        ({"gap": -1, "measure": len}, "gap"),
        ({}, "make"),
    ],
)
def test_bad_questions_are_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.tune(None, OPTIONS, **given)
    assert caught.value.field == field


def test_functions_of_modules_run_in_a_fresh_process() -> None:
    found = sp.tune(None, {"seconds": [0.01]}, measure=fresh)
    assert found.best is not None
    assert found.best.throughput == 1
    assert found.measured is not None
    assert found.measured.by == f"{__name__}.fresh"


def fresh(seconds: float) -> int:
    """Return how many processes this module knows to have started: none but its own."""
    time.sleep(seconds)
    STARTED.append(os.getpid())
    return len(STARTED)


STARTED: list[int] = []

# ---------------------------------------------------------------------- the command

SCRIPT = """#!/bin/sh
echo "$1 $2" >> calls
echo "trying batch $1" >&2
sleep ${SLOW:-0}
if [ $1 -gt $((16 * $2)) ]; then echo "RuntimeError: out of memory" >&2; exit 3; fi
echo "step 1 of 9"
echo '{"throughput": '$((1000 * $1 * $2 / (5 * $2 + $1)))', "memory": 4096}'
echo "done in 3 s"
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work where there is a script that measures."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


TUNE = ("tune", "--over", "batch=1:64", "--over", "devices=1,2,4", "--monotone", "batch")


def test_a_command_measures(script: Path) -> None:
    done = run(
        *TUNE,
        "--command",
        "./run.sh {batch} {devices}",
        "--store",
        "kept",
        "-o",
        "t.json",
        columns=80,
    )
    assert done.returncode == 0, done.stderr
    assert "best: batch 64, devices 4" in done.stdout
    assert "out of memory" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "batch 64, devices 4: 3,047" in done.stderr
    calls = script.with_name("calls").read_text().splitlines()
    assert len(calls) == len(set(calls)) < 18
    again = run(*TUNE, "--command", "./run.sh {batch} {devices}", "--store", "kept", "--json")
    document = json.loads(again.stdout)
    assert document["measured"]["calls"] == 0
    assert document["best"]["memory"] == 4096
    failed = next(one for one in document["evaluations"] if one["status"] == "FAILED")
    assert failed["reason"] == "exit code 3: RuntimeError: out of memory"
    assert failed["log"].startswith("trying batch")
    tuning = read_tuning("t.json")
    assert tuning.measured is not None
    assert check_tuning(tuning, "t.json").violations == ()
    written = json.loads(Path("t.json").read_text())
    assert [one.to_dict() for one in tuning.evaluations] == written["evaluations"]
    written["evaluations"][0]["throughput"] = 1.0
    written["measured"]["skipped"] = {"luck": 3}
    Path("t.json").write_text(json.dumps(written))
    with pytest.raises(sp.InputError, match="skipped"):
        read_tuning("t.json")


def test_what_a_command_says_is_read() -> None:
    def told(text: str) -> Any:
        done = run("tune", "--over", "n=1", "--command", f"{text} # {{n}}", "--json")
        (one,) = json.loads(done.stdout)["evaluations"]
        return one["throughput"] or one["reason"]

    assert told("echo 7 samples; echo -n 12.5e1") == 125
    assert told("echo ${HOME:+3}") == 3
    assert told("echo nothing") == "printed no number"
    assert told("echo -4").startswith("returned -4.0, which is no throughput")
    assert told("kill -9 $$") == "killed by SIGKILL, perhaps for want of memory"
    assert "not found" in told("nosuchcommand")
    missing = run("tune", "--over", "n=1", "--over", "batch=1,2", "--command", "echo {n}")
    assert missing.returncode == 2
    assert "write {batch} there" in missing.stderr
    assert run("tune", "--over", "n=1").returncode == 2


def test_a_command_may_write_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "chain.json"
    sp.write(chain(4, 2), path)
    done = run(
        "tune", "--over", "batch=4", "--command",
        f"""echo '{{"profile": "{path}"}}' # {{batch}}""", "--json",
    )  # fmt: skip
    (one,) = json.loads(done.stdout)["evaluations"]
    assert one["status"] == "OPTIMAL", one
    assert one["cycles"] == sp.plan_model(chain(4, 2)).objective


def _living(words: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [
        line for line in listed.stdout.splitlines() if words in line and "stagepack" not in line
    ]


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    mark = f"30.{os.getpid()}"
    path = tmp_path / "hang.sh"
    path.write_text(f"trap '' TERM\nsetsid sleep {mark} &\nsleep {mark} &\nsleep {mark}\n")
    done = run(
        "tune", "--over", "n=1", "--command", f"sh {path} {{n}}", "--measure-limit", "1", "--json"
    )
    (one,) = json.loads(done.stdout)["evaluations"]
    assert one["reason"] == "was ended after 1 s, the limit of a measurement"
    assert _living(mark) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_ends_early_keeps_what_was_measured_and_leaves_nothing_behind(
    script: Path, number: int
) -> None:
    mark = f"31.{os.getpid()}{number}"
    text = SCRIPT.replace("${SLOW:-0}", f"0; [ $1 -eq 3 ] && sleep {mark}")
    script.write_text(text)
    command = [
        sys.executable, "-m", "stagepack", "tune", "--over", "batch=1:4", "--over", "devices=1",
        "--search", "grid", "--command", "./run.sh {batch} {devices}", "--store", "kept",
    ]  # fmt: skip
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not _living(mark) and time.monotonic() < until:
        time.sleep(0.1)
    child.send_signal(number)
    told, _ = child.communicate(timeout=60)
    if number == signal.SIGINT:
        assert child.returncode == 6
        assert "interrupted" in told
    until = time.monotonic() + 20
    while _living(mark) and time.monotonic() < until:
        time.sleep(0.1)
    assert _living(mark) == []
    script.write_text(SCRIPT)
    script.with_name("calls").write_text("")
    again = run(*command[3:])
    assert again.returncode == 0, again.stderr
    assert script.with_name("calls").read_text().split("\n")[:-1] == ["3 1", "4 1"]


def test_two_runs_on_one_store_measure_nothing_twice(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "0.3")
    command = [
        sys.executable, "-m", "stagepack", "tune", "--over", "batch=1:6", "--over", "devices=1",
        "--search", "grid", "--command", "./run.sh {batch} {devices}", "--store", "kept", "--json",
    ]  # fmt: skip
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    documents = [json.loads(child.communicate(timeout=120)[0]) for child in children]
    assert {one["best"]["batch"] for one in documents} == {6}
    calls = script.with_name("calls").read_text().splitlines()
    assert len(calls) == len(set(calls)) == 6
    assert sum(one["measured"]["calls"] for one in documents) == 6


def test_a_function_of_other_names_is_refused_before_it_is_called() -> None:
    def other(size: int) -> float:
        raise AssertionError("it is not called")

    for measure in (other, lambda: 1.0):
        with pytest.raises(sp.InputError) as caught:
            sp.tune(None, {"batch": [1, 2], "devices": [2]}, measure=measure)
        assert caught.value.field == "measure"
        assert "take batch, devices" in str(caught.value)
    found = sp.tune(None, {"batch": [1, 2]}, measure=lambda **given: float(given["batch"]))
    assert found.best is not None
    assert found.best.options == {"batch": 2}
