"""What the tools that read Stagepack's answers choose by themselves, beside these answers.

    python -m benchmarks.integrations [--deepspeed FOLDER]

prints the rows of `benchmarks/integrations.md` for the tools that are installed, and names the
others: ethos-u-vela, onnxsim, tflite-micro with pymicro-wakeword, executorch, torchtitan, jax.
FOLDER holds an unpacked source distribution of DeepSpeed, whose balancer is run from its file.
Seconds are the CPU time of Stagepack's search, after kernels were compiled and inputs were read.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import stagepack as sp
from benchmarks.packing_peers import Runner, onnxsim_plan, vela_hillclimb

DATA = Path(os.environ.get("STAGEPACK_DATA", "../shared/data"))
RECORDED = ("convnext-tiny", "swin-2222", "bert-6-layers")
MINIMALLOC = ("A", "K")
HEAD = re.compile(r"Arena allocation head ([0-9]+) bytes")


class Row(NamedTuple):
    """What the tool and Stagepack found for one instance."""

    peer: str
    instance: str
    theirs: int | float
    ours: int | float
    bound: int | float
    seconds: float


def solved(instance: Any, **options: Any) -> tuple[Any, float]:
    """Return the result of the second run, and its CPU seconds: the first loads the kernels."""
    for _ in range(2):
        again = instance.replace(name=instance.name)
        begin = time.process_time()
        result = sp.solve(again, time_limit=10, **options)
        seconds = time.process_time() - begin
    return result, seconds


def row(peer: str, name: str, instance: Any, theirs: int | float) -> Row:
    """Return ours beside theirs."""
    result, seconds = solved(instance)
    return Row(peer, name, theirs, result.objective, result.bound, seconds)


# ---------------------------------------------------------------------- stages


def deepspeed(folder: Path) -> Iterator[Row]:
    """Yield what its balancer makes of the weights of layers."""
    (path,) = folder.glob("**/deepspeed/runtime/utils.py")
    tree = ast.parse(path.read_text())
    wanted = ("partition_uniform", "partition_balanced")
    tree.body = [part for part in tree.body if getattr(part, "name", "") in wanted]
    known: dict[str, Any] = {}
    exec(compile(tree, str(path), "exec"), known)
    rng = np.random.default_rng(0)
    cases = [([2, 8, 2, 2, 1, 1, 2, 1, 3], 4)]
    cases += [(rng.integers(1, 100, 40).tolist(), 8) for _ in range(2)]
    version = re.search(r"deepspeed-([0-9.]+)", str(path))
    for weights, parts in cases:
        cuts = known["partition_balanced"](weights, parts)
        theirs = max(sum(weights[a:b]) for a, b in pairwise(cuts))
        chain = sp.PipelinePartition.from_arrays(weights, devices=parts)
        name = f"{len(weights)} weights in {parts}"
        yield row(f"DeepSpeed {version[1] if version else ''}", name, chain, theirs)


def transformer(name: str, devices: int) -> Any:
    """Return the cycles of a network, to be cut between transformer layers alone."""
    cycles = sp.load(f"pipeline/{name}", training=True).cycles
    within = range(2, len(cycles) - 1, 2)
    return sp.PipelinePartition.from_arrays(cycles, devices=devices, forbidden_cuts=within)


def torchtitan() -> Iterator[Row]:
    """Yield the bottleneck of its stages, embedding and head counted as a layer each."""
    from torchtitan.distributed.pipeline_parallel import _generate_llm_fqn_per_model_part

    for name, layers, devices in (
        ("gpt2-medium", 24, 8),
        ("gpt2-xl", 48, 8),
        ("bert-large", 24, 4),
    ):
        chain = transformer(name, devices)
        parts = _generate_llm_fqn_per_model_part(devices, layers, 1, 1)
        counts = [sum(part.startswith("layers.") for part in stage) for stage in parts]
        yield row(f"torchtitan {version('torchtitan')}", f"{name} in {devices}", chain,
                  load(chain, counts))  # fmt: skip


def even() -> Iterator[Row]:
    """Yield the bottleneck of as many transformer layers for each rank.

    That is what Megatron-LM does without a layout, and SGLang without a partition, whose last
    ranks get those that are left.
    """
    for peer, name, layers, devices in (
        ("Megatron-LM, even", "gpt2-medium", 24, 8),
        ("Megatron-LM, even", "gpt2-small", 12, 4),
        ("SGLang, even", "gpt2-large", 36, 8),
    ):
        chain, left = transformer(name, devices), layers % devices
        counts = [layers // devices + (rank >= devices - left) for rank in range(devices)]
        yield row(peer, f"{name} in {devices}", chain, load(chain, counts))


def load(chain: Any, counts: Sequence[int]) -> int | float:
    """Return the bottleneck of stages of so many transformer layers, two of the chain's each."""
    cuts = [0, *(1 + 2 * int(end) for end in np.cumsum(counts)[:-1]), chain.n]
    return max(float(chain.cycles[a:b].sum()) for a, b in pairwise(cuts))


# ---------------------------------------------------------------------- memory


def planners(make: Callable[[], Runner], package: str) -> Iterator[Row]:
    """Yield the peak of a planner that takes buffers; our checker looks at all of them."""
    runner = make()
    files = [(name, DATA / "executorch" / f"{name}.json") for name in RECORDED]
    files += [(f"MiniMalloc {name}", path) for name in MINIMALLOC
              for path in sorted((DATA / "minimalloc").glob(f"**/{name}.*.csv"))]  # fmt: skip
    for name, path in files:
        instance = sp.read(path, kind="packing").replace(capacity=None, objective="peak")
        placed = sp.PackingSolution.of(instance, runner.prepare(instance, 10.0)().offsets)
        assert instance.check(placed) == (), name
        yield row(f"{runner.name} {version(package)}", name, instance, instance.evaluate(placed))


def executorch() -> Iterator[Row]:
    """Yield the peak of its greedy algorithm on the programs that were recorded."""
    import torch
    from executorch.exir.memory_planning import greedy
    from executorch.exir.tensor import TensorSpec

    for name in RECORDED:
        instance = sp.read(DATA / "executorch" / f"{name}.json", kind="packing")
        specs = []
        for size, start, end in zip(instance.size.tolist(), instance.start.tolist(),
                                    instance.end.tolist(), strict=True):  # fmt: skip
            spec = TensorSpec(torch.uint8, torch.Size([size]))
            spec.lifetime = [start, end - 1]
            specs.append(spec)
        graph = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
        theirs = greedy(16, specs, graph, None, 0).bufsizes[1]
        yield row(f"ExecuTorch {version('executorch')} greedy", name, instance, theirs)


def tflm() -> Iterator[Row]:
    """Yield what TensorFlow Lite Micro takes of its arena, with its own plan and with ours."""
    folder = importlib.util.find_spec("pymicro_wakeword")
    assert folder is not None
    assert folder.origin is not None
    for path in sorted((Path(folder.origin).parent / "models").glob("*.tflite")):
        instance = sp.read(path, kind="packing")
        result, seconds = solved(instance)
        with tempfile.TemporaryDirectory() as scratch:
            planned = Path(scratch) / path.name
            sp.write_solution(instance, result, planned, format="tflm", model=path)
            (theirs, said), (ours, told) = arena(path), arena(planned)
        assert said == told, path.stem
        yield Row(f"TFLM {version('tflite-micro')}", path.stem, theirs, ours, result.bound, seconds)


INVOKE = """
import sys
import numpy as np
from tflite_micro.python.tflite_micro import runtime
interpreter = runtime.Interpreter.from_file(sys.argv[1], arena_size=1_000_000)
given, rng = interpreter.get_input_details(0), np.random.default_rng(0)
for _ in range(50):
    values = rng.integers(-128, -100, given["shape"]).astype(given["dtype"])
    interpreter.set_input(values, 0)
    interpreter.invoke()
    print(interpreter.get_output(0).tolist())
interpreter.print_allocations()
"""


def arena(path: Path) -> tuple[int, str]:
    """Return the bytes of tensors in the arena, and what the model answers."""
    done = subprocess.run([sys.executable, "-c", INVOKE, str(path)], capture_output=True, text=True,
                          check=True)  # fmt: skip
    found = HEAD.search(done.stderr + done.stdout)
    assert found is not None
    return int(found[1]), "".join(line for line in done.stdout.splitlines() if line[0] == "[")


XLA = """
import sys, jax, jax.numpy as jnp
def plain(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return (x ** 2).sum()
def looped(weights, x):
    def step(h, _):
        h = jnp.tanh(h @ weights[0]) @ weights[1] + h
        return h, (h ** 2).sum()
    h, sums = jax.lax.scan(step, x, None, length=8)
    return (h ** 2).sum() + sums.sum()
def stagepack_net(weights, x):
    return jax.value_and_grad(globals()[sys.argv[1]])(weights, x)
jax.jit(stagepack_net)([jnp.ones((64, 64))] * 4, jnp.ones((32, 64)))
"""


def xla() -> Iterator[Row]:
    """Yield the bytes that XLA allocates for values; it keeps results in places of their own."""
    for net, name in (("plain", "four layers, gradient"), ("looped", "eight turns, gradient")):
        with tempfile.TemporaryDirectory() as scratch:
            flags = f"--xla_dump_to={scratch} --xla_dump_hlo_module_re=.*stagepack_net.*"
            subprocess.run([sys.executable, "-c", XLA, net], check=True, capture_output=True,
                           env={**os.environ, "XLA_FLAGS": flags})  # fmt: skip
            folder, both = Path(scratch), Path(scratch) / "both.txt"
            parts = [*folder.glob("*-live-range.txt"), *folder.glob("*-assignment.txt")]
            both.write_text("".join(part.read_text() for part in parts))
            instance = sp.read(both, kind="packing")
            own: Any = sp.read_solution(both, instance)
        assert instance.check(own) == ()
        yield row(f"XLA of jax {version('jax')}", name, instance, instance.evaluate(own))


def version(package: str) -> str:
    return importlib.metadata.version(package)


PEERS: dict[str, Callable[[], Iterator[Row]]] = {
    "torchtitan": torchtitan,
    "ethosu": lambda: planners(vela_hillclimb, "ethos-u-vela"),
    "onnxsim": lambda: planners(onnxsim_plan, "onnxsim"),
    "executorch": executorch,
    "tflite_micro": tflm,
    "jax": xla,
}
"""Packages, and the rows that need them."""


def main() -> None:
    """Print all rows there are."""
    parser = argparse.ArgumentParser(description="Beside the tools that take our answers.")
    parser.add_argument("--deepspeed", type=Path, help="folder of its source distribution")
    given = parser.parse_args()
    there = [name for name in PEERS if importlib.util.find_spec(name)]
    print("| peer | instance | theirs | ours | bound | seconds |\n|---|---|---|---|---|---|")
    sources: dict[str, Callable[[], Iterator[Row]]] = {}
    if given.deepspeed is not None:
        sources["DeepSpeed"] = lambda: deepspeed(given.deepspeed)
    sources |= {"even cuts": even, **{name: PEERS[name] for name in there}}
    incomplete = []
    for peer, source in sources.items():
        try:
            for found in source():
                print(f"| {found.peer} | {found.instance} | {found.theirs:,.0f} | "
                      f"{found.ours:,.0f} | {found.bound:,.0f} | {found.seconds:.3f} |",
                      flush=True)  # fmt: skip
        except ModuleNotFoundError as error:  # a peer that was installed without what it needs
            incomplete.append(f"\nNot asked: {peer}, which needs more: {error}")
    print(*incomplete, sep="", end="\n" if incomplete else "")
    print(f"\nNot installed here: {', '.join(sorted(set(PEERS) - set(there))) or 'none'}")
    if given.deepspeed is None:
        print("Not asked: DeepSpeed; --deepspeed FOLDER says where its sources are unpacked")


if __name__ == "__main__":
    main()
