"""Models of TensorFlow Lite: what lives when, plans in and out, and files that are not to be."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.tflite import arena
from stagepack.formats.tflite.model import plan_of, read
from stagepack.formats.tflite.planned import with_plan
from stagepack.formats.tflite.runtime import whole
from tests.cli.shell import run
from tests.formats.flatbuffers import graph, model

# t0 -> add t1 -> t2; unheard-of t2, t0 -> t3; t1 is a constant, t4 is never used.
SMALL = model(graph([20, 8, 33, 16, 5], [(0, [0, 1], [2]), (1, [2, -1, 0], [3])], [0], [3], [1]))


def saved(folder: Path, data: bytes, name: str = "net.tflite") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def planned(data: bytes, *offsets: int, subgraphs: int = 1) -> bytes:
    return with_plan(data, offsets, subgraphs)


def test_lifetimes_are_those_of_the_runtime(tmp_path: Path) -> None:
    instance = sp.read(saved(tmp_path, SMALL), kind="packing")
    assert instance.ids == ("t0", "t2", "t3")
    assert instance.size.tolist() == [32, 48, 16]  # in steps of 16
    assert list(zip(instance.start.tolist(), instance.end.tolist(), strict=True)) == [
        (0, 3), (1, 3), (2, 3),
    ]  # fmt: skip
    assert set(instance.alignment.tolist()) == {16}
    assert sp.solve(instance).objective == 96


def test_subgraphs_live_while_their_operator_runs(tmp_path: Path) -> None:
    main = graph([16, 16, 16], [(0, [0], [1]), (2, [1], [2], 1, 2)], [0], [2])
    then, otherwise = (graph([16, 16], [(0, [0], [1])], [0], [1]) for _ in range(2))
    instance = sp.read(saved(tmp_path, model(main, then, otherwise)), kind="packing")
    lives = dict(zip(instance.ids or (), zip(instance.start.tolist(), instance.end.tolist(),
                                             strict=True), strict=True))  # fmt: skip
    assert lives == {
        "t0 (0)": (0, 2), "t1 (1)": (1, 5), "t2": (2, 5),
        "t0 (3)": (2, 4), "t1 (4)": (3, 4), "t0 (5)": (3, 5), "t1 (6)": (4, 5),
    }  # fmt: skip


def test_numbers_of_variables_are_kept_by_their_operator(tmp_path: Path) -> None:
    numbered = graph([4, 16, 16], [(4, [], [0]), (1, [0, 1], [2])], [1], [2])
    assert sp.read(saved(tmp_path, model(numbered)), kind="packing").ids == ("t1", "t2")


def test_a_plan_goes_into_the_model_and_is_proved(tmp_path: Path) -> None:
    path, out = saved(tmp_path, SMALL), tmp_path / "planned.tflite"
    done = run("solve", path, "--export", out, "--as", "tflm")
    assert done.returncode == 0, done.stderr
    assert run("check", out).stdout.startswith("valid: peak 96 bytes")
    # The model is as it was, and its constants are aligned as they were.
    assert out.read_bytes().endswith(SMALL)
    assert (len(out.read_bytes()) - len(SMALL)) % 64 == 0
    assert sp.read(out, kind="packing").digest == sp.read(path, kind="packing").digest
    # A new plan takes the place of an old one, and one that clashes is told.
    instance = sp.read(out, kind="packing")
    wrong = planned(out.read_bytes(), 0, -1, 0, 48, -1)
    (clash,) = instance.check(arena.solution(wrong, instance))
    assert "t0" in str(clash)
    assert "t2" in str(clash)
    with pytest.raises(InputError, match="its tensors are not those of net"):
        arena.solution(SMALL, sp.LmemPacking.from_arrays([16], [0], [1], name="net"))


def test_two_models_share_an_arena(tmp_path: Path) -> None:
    """Each has a plan of its own in one arena, above the state of the other."""
    other = model(graph([64, 16, 32], [(0, [0], [1]), (1, [1], [2])], [0], [2]))
    paths = [saved(tmp_path, SMALL, "a.tflite"), saved(tmp_path, other, "b.tflite")]
    programs = [sp.read(path, kind="packing") for path in paths]
    assert sp.solve(sp.merge_programs(programs)).objective == 96  # the larger of the two
    both = sp.merge_programs(programs, persistent=["a/t0", "b/t2"])
    result = sp.solve(both)
    assert result.objective == 32 + 32 + max(48 + 16, 64 + 16)
    for path, program, part in zip(
        paths, programs, sp.split_programs(programs, result), strict=True
    ):
        plan = arena.planned(program, part, model=path)
        assert arena.solution(plan, program) == part


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (SMALL, "metadata: holds no plan"),
        (planned(SMALL, 0, 48), "plans 2 tensors, and the model has 5"),
        (model(graph([4], [(0, [0], [0])], [0], [0]),
               metadata=[(b"OfflineMemoryAllocation", struct.pack("<3i", 1, 1, 9))]),
         "the plan has 12 bytes, too few"),
    ],
)  # fmt: skip
def test_models_without_a_whole_plan_are_named(data: bytes, words: str, tmp_path: Path) -> None:
    path = saved(tmp_path, data)
    with pytest.raises(InputError, match=words):
        sp.read_solution(path, sp.read(path, kind="packing"))


def test_tensors_left_to_the_runtime_lie_where_it_places_them(tmp_path: Path) -> None:
    """Worked by hand: t0 lives with t2 and t3, t2 (48 bytes) with t3."""
    for offsets, places in (
        ((-1, -1, -1, -1, -1), [48, 0, 80]),  # the largest first, then t0, then t3
        ((16, -1, -1, -1, -1), [16, 48, 0]),  # t2 finds no room below t0, and t3 does
        ((64, -1, 96, -1, -1), [64, 96, 0]),
        ((-5, -1, 32, 96, -1), [-5, 32, 96]),  # no place, and none that is left
    ):
        path = saved(tmp_path, planned(SMALL, *offsets))
        instance = sp.read(path, kind="packing")
        solution: Any = sp.read_solution(path, instance)
        assert solution.offsets.tolist() == places
        assert (instance.check(solution) == ()) == (-5 not in offsets)
    done = run("check", saved(tmp_path, planned(SMALL, 0, -1, 32, -1, -1)))
    assert (done.returncode, done.stdout) == (0, "valid: peak 96 bytes\n")
    assert "1 of 3 tensors are left to the runtime" in done.stderr


def test_plans_that_leave_too_much_are_refused() -> None:
    many = np.ones(10_001, dtype=np.int64)
    with pytest.raises(InputError, match="leaves 10001 of 10001 tensors to the runtime"):
        whole(-many, many, many, many + 1)


def fan(tensors: int) -> bytes:
    """Return a model of many tensors that all refer to one long name."""
    return model(
        graph([4], [], [0], [0]) | {0: [{0: (1,), 1: 9, 3: (0,) * 10 * tensors}] * tensors}
    )


def calls(subgraphs: int, times: int) -> bytes:
    """Return a model whose subgraphs run the next one, several times each."""
    return model(
        *(graph([4], [(2, [0], [0], at, at)] * times, [0], [0]) for at in range(1, subgraphs)),
        graph([4], [], [0], [0]),
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (calls(2000, 1), "more than 100 subgraphs that run one another"),
        (model(graph([4], [], [0], [0]) | {0: [{0: (2**31 - 1,) * 65, 1: 9}]}), "has no fixed"),
        (model(graph([4, 4], [(0, [1], [0])], [0], [0])), "'t1' is read, and nothing has written"),
        (model(graph([4], [(0, [0], [7])], [0], [0])), "names tensor 7 of 1"),
        (model(graph([4], [(9, [0], [0])], [0], [0])), "names operator code 9 of 5"),
        (model(graph([4], [(2, [0], [0], 0, 0)], [0], [0])), "subgraph 0 runs itself"),
        (model(graph([4], [(2, [0], [0], 5, 5)], [0], [0])), "subgraph 5 is not there"),
        (model(graph([-4], [], [0], [0])), r"tensor 't0' of type 9 and shape \[-4\]"),
        (model(graph([4], [], [0], [0], [0])), "has no tensor to place"),
        (fan(400), "refers to the same bytes over and over"),
        (struct.pack("<I4sI", 2**31, b"TFL3", 0), "is cut short or damaged"),
    ],
)
def test_models_that_cannot_be_are_refused(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        sp.read(saved(tmp_path, data), kind="packing")


def test_damaged_models_are_refused_or_read(tmp_path: Path) -> None:
    """Cut short anywhere, or with bytes changed at random: an error of ours, or an answer."""
    data = planned(SMALL, 0, -1, 32, 80, -1)
    rng = random.Random(0)
    altered = [data[:length] for length in range(8, len(data), 7)]
    for _ in range(300):
        other = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            other[rng.randrange(8, len(other))] = rng.randrange(256)
        altered.append(bytes(other))
    refused = 0
    for each in altered:
        try:
            instance = arena.packing(read(each), {}, "net.tflite")
            instance.check(arena.solution(each, instance))
        except InputError:
            refused += 1
    assert len(altered) // 4 < refused < len(altered)


def test_a_header_names_every_buffer() -> None:
    instance = sp.LmemPacking.from_arrays(
        [8, 8, 4], [0, 0, 1], [1, 2, 2], ids=["a b", "A-B", "*/ int x;"], alignment=4, name="n*/"
    )
    solution = sp.PackingSolution.of(instance, np.array([0, 8, 0]))
    from stagepack.formats.solutions import written_for

    text = written_for(instance, solution, "c", {"prefix": "NET"}).decode()
    assert "#define NET_SIZE 16ULL\n" in text
    assert "#define NET_A_B_OFFSET 0ULL\n" in text
    assert "#define NET_A_B_1_OFFSET 8ULL\n" in text
    assert "#define NET_INT_X_SIZE 4ULL\n" in text
    assert "/* ? int x; */\n" in text
    for prefix, words in (("1", "prefix: '1' is no name in C"), (1, "prefix: 1 will not do")):
        with pytest.raises(InputError, match=words):
            written_for(instance, solution, "c", {"prefix": prefix})
    with pytest.raises(InputError, match="model: is missing"):
        written_for(instance, solution, "tflm", {"model": 5})


def inferred(data: bytes, count: int) -> Any:
    """Return what TensorFlow Lite Micro answers to random inputs."""
    runtime = pytest.importorskip(
        "tflite_micro.python.tflite_micro.runtime", reason="tflite-micro is not installed"
    )
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=400_000)
    given, rng, found = interpreter.get_input_details(0), np.random.default_rng(0), []
    for _ in range(count):
        values = rng.integers(-128, -100, given["shape"]).astype(given["dtype"])
        interpreter.set_input(values, 0)
        interpreter.invoke()
        found.append(interpreter.get_output(0).copy())
    interpreter.print_allocations()
    return np.array(found)


def test_the_runtime_answers_the_same_from_our_plan(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = pytest.importorskip("pymicro_wakeword", reason="pymicro-wakeword is not installed")
    path = Path(words.__file__).parent / "models" / "okay_nabu.tflite"
    data, instance = path.read_bytes(), sp.read(path, kind="packing")
    result = sp.solve(instance)
    assert (result.status, result.objective) == ("OPTIMAL", 3584)  # its own planner takes 3840
    out = tmp_path / "planned.tflite"
    sp.write_solution(instance, result, out, format="tflm", model=path)
    expected = inferred(data, 40)
    assert np.unique(expected).size > 1
    assert np.array_equal(inferred(out.read_bytes(), 40), expected)
    # Without any plan, with a part of ours and with all of it, the arena is as large as we say.
    whole, tensors = list(plan_of(out.read_bytes()) or ()), len(read(data).tensors)
    given = [[-1] * tensors, [at if n % 3 else -1 for n, at in enumerate(whole)], whole]
    capfd.readouterr()
    worth = []
    for offsets in given:
        out.write_bytes(with_plan(data, offsets, len(read(data).subgraphs)))
        placed: Any = sp.read_solution(out, instance)
        worth.append(instance.evaluate(placed))
        assert np.array_equal(inferred(out.read_bytes(), 40), expected)
    said = "".join(capfd.readouterr())
    heads = re.findall(r"Arena allocation head ([0-9]+) bytes", said)
    assert [int(head) for head in heads] == worth
    tails = re.findall(r"Arena allocation tail ([0-9]+) bytes", said)
    assert len(tails) == len(heads)
    assert len(set(tails)) == 1  # what is persistent does not depend on the plan
    assert (worth[0], worth[2]) == (3840, 3584)
    # It does not look whether tensors overlap; we do.
    zeros = with_plan(data, [0] * tensors, 1)
    assert instance.check(arena.solution(zeros, instance)) != ()


def test_lite_rt_reads_a_model_with_a_plan(tmp_path: Path) -> None:
    interpreter = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    runtime = pytest.importorskip("tflite_micro", reason="tflite-micro is not installed")
    folder = Path(runtime.__file__).parent / "python" / "tflite_micro"
    path, out = folder / "sine_float.tflite", tmp_path / "planned.tflite"
    instance = sp.read(path, kind="packing")
    sp.write_solution(instance, sp.solve(instance), out, format="tflm", model=path)
    answers = []
    for each in (path, out):
        run_by = interpreter.Interpreter(model_path=str(each))
        run_by.allocate_tensors()
        run_by.set_tensor(run_by.get_input_details()[0]["index"], np.array([[0.5]], np.float32))
        run_by.invoke()
        answers.append(run_by.get_tensor(run_by.get_output_details()[0]["index"]))
    assert np.array_equal(*answers)
