"""Dumps of compilers and traces of runs as packing instances: Vela's, XLA's, PyTorch's."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError

# As ethos-u-vela 5.2.0 prints it; two tensors of one range are fused.
VELA = """\
Warning: something else
################################################################################
Allocation, memory Sram, usage mask: FeatureMap|Staging
Start Time - End Time  : Start Addr -   End Addr: Tensor Size: Memory Usage: Format         : Name
         0 -          3:      0x040 -      0x0c0:         128:          192: NHWC           : in:0
         2 -          5:        0x0 -       0x40:          64:          192: NHCWB16        : a;b
         2 -          5:        0x0 -       0x40:          64:          192: NHCWB16        : c
         5 -          6:       0x40 -      0x100:         192:          256: NHCWB16        : d
Allocation Peak Tensor Size: 256 bytes == 0.25 KiB
################################################################################
Tensor Allocation for read-only NPU tensors:
Start Time - End Time  : Start Addr -   End Addr: Tensor Size: Memory Usage: Format         : Name
         2 -          3:        0x0 -      0x400:        1024:         1024: Unknown        : w
Allocation Peak Tensor Size: 1024 bytes == 1 KiB
"""
# As XLA of jax 0.10.2 dumps it on a CPU, some lines of a small module.
RANGES = """\
HloLiveRange (max 9):
  InstructionSequence:
    0:w.1
    1:dot
  BufferLiveRange:
    w.1{}:0-9
    tanh{}:1-4
    dot{}:4-6
    sum{0}:6-9
"""
ASSIGNMENT = """\
BufferAssignment:
allocation 0: size 256, maybe-live-out:
 value: <80 tanh @0> (size=256,offset=0): f32[64]{0}
 value: <81 dot @0> (size=256,offset=0): f32[64]{0}
allocation 1: size 4, maybe-live-out:
 value: <82 sum{0} (phi) @0> (size=4,offset=0): f32[]
allocation 2: size 40, parameter 0, shape |f32[10]| at ShapeIndex {}:
 value: <78 w.1 @0> (size=40,offset=0): f32[10]{0}
allocation 3: size 4, thread-local:
 value: <2 add @0> (size=4,offset=0): f32[]

Total bytes used: 304 (304B)
"""


def memory(ts: float, address: int, nbytes: int, device: int = 0) -> dict[str, Any]:
    facts = {
        "Bytes": nbytes,
        "Addr": address,
        "Device Type": min(device, 1),
        "Device Id": device - 1,
    }
    return {"ph": "i", "name": "[memory]", "ts": ts, "args": facts}


TRACE = json.dumps({
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "name": "aten::mm", "ts": 1, "args": {"Addr": "none"}},
        memory(5.5, 64, 100), memory(2, 64, 32), memory(5, 64, -32), memory(6, 9, -8),
        memory(3, 512, 40, device=1), memory(7, 64, -100),
    ],
})  # fmt: skip
SNAPSHOT = json.dumps({
    "segments": [],
    "device_traces": [[], [
        {"action": "segment_alloc", "addr": 0, "size": 999},
        {"action": "alloc", "addr": 512, "size": 512, "stream": 0},
        {"action": "free_requested", "addr": 512, "size": 512},
        {"action": "alloc", "addr": 1024, "size": 1024},
        {"action": "free_completed", "addr": 512, "size": 512},
        {"action": "snapshot", "addr": 0, "size": 0},
    ]],
})  # fmt: skip


def saved(folder: Path, text: str | bytes, name: str = "dump.txt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def buffers(instance: sp.LmemPacking) -> list[tuple[str, int, int, int]]:
    columns = (instance.size.tolist(), instance.start.tolist(), instance.end.tolist())
    return [(instance.buffer_id(at), *row) for at, row in enumerate(zip(*columns, strict=True))]


def test_vela_prints_what_lives_when_and_where(tmp_path: Path) -> None:
    path = saved(tmp_path, VELA)
    instance = sp.read(path, kind="packing")
    assert instance.name == "Sram FeatureMap|Staging"
    assert buffers(instance) == [("in:0", 128, 0, 4), ("a;b", 64, 2, 6), ("d", 192, 5, 7)]
    own: Any = sp.read_solution(path, instance)
    assert instance.check(own) == ()
    assert instance.evaluate(own) == sp.solve(instance).objective == 256
    columns = "Memory Usage: Format  ", "Memory Usage: Purpose: Format  "
    longer = re.sub(r": (NH\w+|Unknown)", r": Feature Map : \1", VELA.replace(*columns))
    assert buffers(sp.read(saved(tmp_path, longer), kind="packing")) == buffers(instance)


def test_vela_itself_is_read(tmp_path: Path) -> None:
    """Its addresses are right by our lifetimes, and never below our bound."""
    pytest.importorskip("ethosu.vela", reason="ethos-u-vela is not installed")
    words = pytest.importorskip("pymicro_wakeword", reason="pymicro-wakeword is not installed")
    model = Path(words.__file__).parent / "models" / "okay_nabu.tflite"
    command = (sys.executable, "-m", "ethosu.vela", model, "--verbose-allocation",
               "--output-dir", tmp_path)  # fmt: skip
    path = saved(tmp_path, subprocess.run(command, capture_output=True, check=True).stdout)
    for instance in sp.read_all(path, kind="packing"):
        own: Any = sp.read_solution(path, instance)
        assert instance.check(own) == ()
        result = sp.solve(instance)
        assert result.status == "OPTIMAL"
        assert result.objective is not None
        assert result.objective <= instance.evaluate(own)


def test_a_log_of_vela_without_tables_is_told_how_to_have_them(tmp_path: Path) -> None:
    log = "Network summary for net\nAccelerator configuration               Ethos_U55_256\n"
    with pytest.raises(InputError, match=r"is Vela's summary; .* --verbose-allocation"):
        sp.read(saved(tmp_path, log, "net.log"))


def test_xla_dumps_live_ranges_beside_its_assignment(tmp_path: Path) -> None:
    ranges = saved(tmp_path, RANGES, "m.jit_f-live-range.txt")
    with pytest.raises(InputError, match=r"buffer-assignment\.txt is missing; append it, or say"):
        sp.read(ranges)
    elsewhere = saved(tmp_path, ASSIGNMENT, "elsewhere.txt")
    instance = sp.read(ranges, kind="packing", assignment=str(elsewhere))
    saved(tmp_path, ASSIGNMENT, "m.jit_f-buffer-assignment.txt")
    assert sp.read(ranges).digest == instance.digest
    assert instance.name == "m.jit_f"
    assert buffers(instance) == [("tanh{}", 256, 1, 5), ("dot{}", 256, 4, 7), ("sum{0}", 4, 6, 10)]
    assert instance.in_place == ((0, 1),)
    both = saved(tmp_path, ASSIGNMENT + RANGES)
    own: Any = sp.read_solution(both, sp.read(both, kind="packing"))
    assert instance.check(own) == ()
    assert instance.evaluate(own) == 260
    whole = saved(tmp_path, RANGES + ASSIGNMENT, "m.jit_f-live-range.txt")
    assert sp.read(whole).digest == instance.digest


def test_an_assignment_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """Between two lines, where each is whole."""
    path = tmp_path / "dump.txt"
    path.write_text(RANGES + ASSIGNMENT[: ASSIGNMENT.index("allocation 1")])
    with pytest.raises(InputError, match=r"when w\.1\{\} lives, .* cut short"):
        sp.read(path, kind="packing")


LOOP_RANGES = """\
HloLiveRange (max 32):
  BufferLiveRange:
    before{}:0-2
    init{}:2-3
    arg{1}:3-5
    within{}:6-6
    next{}:7-9
    while{1}:9-12
    late{}:12-14
    other{}:7-12
"""
LOOP_ASSIGNMENT = """\
BufferAssignment:
allocation 3: size 128, preallocated-temp:
 value: <1 before @0> (size=32,offset=0): f32[8]{0}
 value: <2 init @0> (size=64,offset=0): f32[16]{0}
 value: <3 next @0> (size=64,offset=0): f32[16]{0}
 value: <5 arg{1} (phi) @0> (size=64,offset=0): f32[16]{0}
 value: <6 while{1} (phi) @0> (size=64,offset=0): f32[16]{0}
 value: <7 late @0> (size=32,offset=0): f32[8]{0}
 value: <9 within @0> (size=128,offset=0): f32[32]{0}
 value: <8 other @0> (size=32,offset=64): f32[8]{0}
"""


def test_what_xla_carries_through_a_loop_stays_in_one_place(tmp_path: Path) -> None:
    both = saved(tmp_path, LOOP_RANGES + LOOP_ASSIGNMENT)
    instance = sp.read(both, kind="packing")
    assert [instance.buffer_id(at) for at in instance.colocated[0]] == [
        "init{}", "next{}", "arg{1}", "while{1}",
    ]  # fmt: skip
    own: Any = sp.read_solution(both, instance)
    assert instance.check(own) == ()
    assert instance.evaluate(own) == sp.solve(instance).objective == 128


def test_traces_of_pytorch_tell_what_was_allocated(tmp_path: Path) -> None:
    path = saved(tmp_path, TRACE, "step.json")
    cuda, cpu = sorted(sp.read_all(path, kind="packing"), key=lambda each: each.n)
    assert (cpu.name, cuda.name) == ("step cpu", "step cuda:0")
    assert buffers(cpu) == [("0", 32, 1, 2), ("1", 100, 3, 5), ("2", 8, 0, 4)]
    assert buffers(cuda) == [("0", 40, 1, 2)]
    bare = json.dumps(json.loads(TRACE)["traceEvents"], indent=1)
    assert [buffers(each) for each in sp.read_all(saved(tmp_path, bare, "step.json"))] == [
        buffers(cpu), buffers(cuda),
    ]  # fmt: skip
    instance = sp.read(saved(tmp_path, SNAPSHOT, "snap.json"), kind="packing", alignment=512)
    assert buffers(instance) == [("0", 512, 1, 3), ("1", 1024, 2, 4)]
    assert sp.solve(instance).objective == 1536


class Trap:
    """Says so when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pickle.dumps({"device_traces": Trap()}), "is a pickle, and to load one runs whatever"),
        (json.dumps({"traceEvents": []}), "holds no events of memory"),
        ('[{"name": "[memory]"}, 3]', r"\[1\]"),
        ('[{"name": "[memory]", "args": {"Byt', "dump.json"),
        (json.dumps({"device_traces": [[{"addr": 4}]]}), r"device_traces\[0\]\[0\]"),
        (json.dumps({"traceEvents": [memory(1, 8, 4), memory(2, 8, 4)]}),
         "event 2 of dump: 0x8, 4 bytes, is allocated again"),
        (json.dumps({"traceEvents": [memory(1, 8, 4), memory(2, 8, -5)]}), "freed with 5 bytes"),
        (VELA.replace("0x0c0", "0x0c1"), "line 5: has no name, or ranges that are none"),
        (VELA.replace("128:          192: NHWC           :", "128"), "line 5"),
        (VELA[:600], "line 8: is no row of the table"),
        (VELA[: VELA.index("         5 - ")], "Staging' ends without its peak: it was cut short"),
        (RANGES + ASSIGNMENT.replace("<81 dot @0>", "dot"), "line 13: is no allocation and no"),
        (RANGES.replace("4-6", "6-4") + ASSIGNMENT, "line 8: ends before it begins"),
        (RANGES + "BufferAssignment:\n", "holds no buffers to place"),
    ],
)  # fmt: skip
def test_dumps_that_cannot_be_are_refused(data: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        sp.read(saved(tmp_path, data, "dump.json"))


def test_values_that_xla_has_in_one_place_are_paired_once(tmp_path: Path) -> None:
    """Thousands that end together, as no XLA writes them, make no millions of pairs."""
    count = 3000
    ranges = (f"    v{at}{{}}:{(0, 5)[at % 2]}-{(5, 9)[at % 2]}\n" for at in range(count))
    values = (f" value: <{at} v{at} @0> (size=4,offset=0): f32[]\n" for at in range(count))
    text = "".join(("HloLiveRange (max 9):\n", *ranges, "BufferAssignment:\n",
                    "allocation 0: size 4, maybe-live-out:\n", *values))  # fmt: skip
    assert len(sp.read(saved(tmp_path, text), kind="packing").in_place) == count // 2


BARE = json.dumps(json.loads(TRACE)["traceEvents"])


@pytest.mark.parametrize("text", [VELA, RANGES + ASSIGNMENT, LOOP_RANGES + LOOP_ASSIGNMENT,
                                  TRACE, BARE, SNAPSHOT])  # fmt: skip
def test_damaged_dumps_are_refused_or_read(text: str, tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "dump"
    for _ in range(60):
        data = bytearray(text.encode())
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.choice((len(data), rng.randrange(1, len(data))))])
        with contextlib.suppress(InputError):
            sp.read_all(path)
