"""Layer grouping beside Arm's Vela, a compiler that groups operators into cascades.

    pip install ethos-u-vela tflite flatbuffers        # Vela may be in an environment of its own
    python -m benchmarks.groups --only peers --vela /path/to/vela [--models FOLDER]

Networks of the catalog are written as int8 models and given to both.  Equal for both: values of one
byte, channels rounded up to 16 (Vela's layout, here 16 lanes), stripes along H, and a memory that
holds no weights.  These differences remain, and so no ratios are printed:

- Vela's cascades pass rows on in rolling buffers and compute no row twice; Stagepack's slices
  compute their halos again.  Vela's cascades and whole tensors share one memory, while tensors
  between Stagepack's groups are stored in global memory.  The smallest memory in which all
  activations stay is therefore that of a single group, which cannot be sliced if it has a global
  pooling; Vela may need less.
- Vela counts the bytes that the hardware reads for each block of outputs; Stagepack counts the
  bytes that a slice reads once.  Bytes that are *written* to global memory are counted in the same
  way.
- Stagepack minimises the bytes that are moved, with proof, regardless of computations that are
  repeated (`again`: multiply-accumulates beyond those of the network).  Vela minimises the cycles
  that it estimates.
- With `standalone` as `needed`, no operator of Stagepack runs from global memory: as in Vela, it is
  cut until its data fit.

The second part is about the models in ``--models``, by default those of the package
pymicro-wakeword if it is installed.  They have no rows to slice, so both answer a packing problem.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

import stagepack as sp
from benchmarks.groups_tflite import UnsupportedError, lifetimes, write
from stagepack.instances.groups import GroupingSolution, LaneChip, LayerGrouping
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.operators import H, macs
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing import LmemPacking

NETWORKS = ("squeezenet", "inception-v2", "resnet50", "densenet121")
LANES = 16
SHARES = (1.0, 0.5, 0.25, 0.125)
SIZE = ("--accelerator-config", "ethos-u55-256", "--system-config", "Ethos_U55_High_End_Embedded",
        "--memory-mode", "Shared_Sram", "--optimise", "Size")  # fmt: skip
ARENA = ("--accelerator-config", "ethos-u65-512", "--system-config", "Ethos_U65_High_End",
         "--memory-mode", "Dedicated_Sram", "--disable-buffering",
         "--arena-cache-size")  # fmt: skip


class Cascade(NamedTuple):
    """Operators that hand rows on, from one to another, both included, and bytes for them."""

    first: int
    last: int
    size: int


class Vela(NamedTuple):
    """What Vela says of a network: bytes on chip, read and written off chip, its cascades."""

    memory: int
    read: int
    written: int
    cascades: tuple[Cascade, ...]

    def told(self) -> str:
        """Return how many cascades there are, of how many operators, bytes of the largest."""
        inside = sum(one.last - one.first + 1 for one in self.cascades)
        most = max((one.size for one in self.cascades), default=0)
        return f"{len(self.cascades):>10}{inside:>7}{most:>11,}"


HEADS = f"{'cascades':>10}{'of ops':>7}{'largest':>11}"


def cascades(schedule: str) -> tuple[Cascade, ...]:
    r"""Return the cascades of what ``--verbose-schedule`` prints.

    >>> cascades("Cascades:\n  2: 0 -> 2, size: 430112\n")
    (Cascade(first=0, last=2, size=430112),)
    """
    found = re.findall(r"^\s+\d+: (\d+) -> (\d+), size: (\d+)", schedule, re.MULTILINE)
    return tuple(Cascade(*map(int, figures)) for figures in found)


class Compiler:
    """Vela, called as a command.

    Parameters
    ----------
    command : str
    folder : Path
        Where it writes.
    """

    def __init__(self, command: str, folder: Path) -> None:
        self._command, self._folder = command, folder

    def __call__(self, model: Path, *options: str) -> Vela | str:
        """Return what it says of a model, or the end of its complaint."""
        for old in self._folder.glob("*.csv"):
            old.unlink()
        run = subprocess.run(
            [self._command, str(model), "--config", "Arm/vela.ini", "--verbose-schedule",
             "--output-dir", str(self._folder), *options],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        summary = next(self._folder.glob("*_summary_*.csv"), None)
        if run.returncode or summary is None:
            return (run.stderr or run.stdout).strip().splitlines()[-1][:70]
        with summary.open() as rows:
            last = list(csv.DictReader(rows))[-1]
        off = ("dram", "off_chip_flash")
        return Vela(
            memory=round(1024 * float(last["sram_memory_used"])),
            read=sum(int(last[f"{where}_feature_map_read_bytes"]) for where in off),
            written=sum(int(last[f"{where}_feature_map_write_bytes"]) for where in off),
            cascades=cascades(run.stdout),
        )


def peers(command: str, models: str) -> None:
    """Print what Vela and we say of the same networks; the reason where that is not possible."""
    found = shutil.which(command)
    if found is None:
        print(f"\nVela: no command {command!r} here (pip install ethos-u-vela, --vela PATH)")
        return
    missing = [name for name in ("tflite", "flatbuffers") if find_spec(name) is None]
    if missing:
        print(f"\nVela: models cannot be written here: pip install {' '.join(missing)}")
        return
    with tempfile.TemporaryDirectory() as folder:
        vela = Compiler(found, Path(folder))
        networks(vela, Path(folder), NETWORKS)
        for path in wake_words(models):
            wake_word(vela, path)


def wake_words(models: str) -> list[Path]:
    """Return the models in a folder; without one those of an installed package."""
    package = find_spec("pymicro_wakeword")
    inside = [] if package is None else package.submodule_search_locations or []
    folders = [models] if models else inside
    found = sorted(path for folder in folders for path in Path(folder).glob("**/*.tflite"))
    if not found:
        print("\nno models: pip install pymicro-wakeword, or --models FOLDER")
    return found


def networks(vela: Compiler, folder: Path, names: Sequence[str]) -> None:
    """Print the least memory, and the traffic in less, of networks of the catalog."""
    print(f"\n{'all activations on chip':<26}{'Vela bytes':>12}{HEADS}{'one group':>12}  ")
    written: list[tuple[LayerGrouping, Path, int]] = []
    for name in names:
        instance, path = sp.load(f"groups/{name}"), folder / f"{name}.tflite"
        assert isinstance(instance, LayerGrouping)
        try:
            write(instance, path)
        except UnsupportedError as error:
            print(f"{name:<26}not written: {error}")
            continue
        own, status = least(instance)
        said = vela(path, *SIZE)
        theirs = f"{'-':>40}" if isinstance(said, str) else f"{said.memory:>12,}{said.told()}"
        print(f"{name:<26}{theirs}{own:>12,}  {status}"
              + (f"  Vela: {said}" if isinstance(said, str) else ""), flush=True)  # fmt: skip
        written.append((instance, path, own))
    print(f"\n{'traffic of':<16}{'memory':>11}{'Vela reads':>13}{'writes':>12}{HEADS}"
          f"{'ours read':>13}{'writes':>12}{'groups':>8}{'again':>8}  status")  # fmt: skip
    for instance, path, own in written:
        for share in SHARES:
            memory = int(own * share) // LANES * LANES
            small = traffic(instance, memory)
            said = vela(path, *ARENA, str(memory))
            line = f"{path.stem:<16}{memory:>11,}"
            line += (f"{said[:51]:>53}" if isinstance(said, str) else
                     f"{said.read:>13,}{said.written:>12,}{said.told()}")  # fmt: skip
            result = sp.solve(small, "dp", time_limit=60)
            if isinstance(result.solution, GroupingSolution) and result.objective is not None:
                stored = stores(instance, result.solution)
                line += (f"{result.objective - stored:>13,}{stored:>12,}"
                         f"{result.solution.groups:>8}{again(instance, result.solution):>8.1%}"
                         )  # fmt: skip
            print(f"{line}  {result.status}", flush=True)


def traffic(instance: LayerGrouping, memory: int) -> LayerGrouping:
    """Return the instance whose cycles are the bytes of feature maps that leave or enter memory."""
    bare = [msgspec.structs.replace(op, cycles=0, weights=()) for op in instance.operators]
    chip = LaneChip(name="arena", lanes=LANES, memory=max(1, memory // LANES))
    return instance.replace(
        operators=bare,
        chip=chip,
        standalone="needed",
        max_group=instance.n,
        max_slices=112,
        overlap_limit=None,
    )


def stores(instance: LayerGrouping, solution: GroupingSolution) -> int:
    """Return the bytes that a plan writes to global memory: every tensor that leaves a group."""
    found = 0
    for group in range(solution.groups):
        own = solution.operators(group)
        for at in own:
            known = instance.tensors[at]
            if not known.readers or any(reader not in own for reader in known.readers):
                found += known.nbytes(known.shape)
    return found


def again(instance: LayerGrouping, solution: GroupingSolution) -> float:
    """Return how much is computed beyond what the network computes, for the halos of slices."""
    whole, extra = 0, 0.0
    for group, table in solution.timetables(instance):
        for at in solution.operators(group):
            work = macs(instance.operators[at], instance.sources(at))
            whole += work
            if table is not None:
                rows = sum(length for _, length in table.regions.along(H)[at])
                extra += work * (rows / instance.operators[at].full[H] - 1)
    return extra / whole


def least(instance: LayerGrouping) -> tuple[int, str]:
    """Return the least memory of the network as one group, not sliced, and what is proved of it."""
    bare = traffic(instance, 2**40)
    table = Timetable(Regions(bare, range(bare.n), Cut()))
    result = sp.solve(packing(table).replace(objective="peak", capacity=None), time_limit=60)
    assert result.objective is not None
    return LANES * int(result.objective), str(result.status)


def wake_word(vela: Compiler, path: Path) -> None:
    """Print the memory of a model whose tensors all stay on chip: Vela's, and the least for them.

    Ours holds every tensor that an operator writes, in the order of the file, at multiples of 16.
    Vela has all reads of variables first, since they are the processor's, so all live together.
    """
    sizes, start, end = lifetimes(path)
    buffers = LmemPacking.from_arrays(
        sizes, start, end, alignment=[16] * len(sizes), objective="peak"
    )
    result = sp.solve(buffers, time_limit=60)
    said = vela(path, *SIZE)
    theirs = (
        said if isinstance(said, str) else f"{said.memory:,} bytes, {len(said.cascades)} cascades"
    )
    print(f"{path.stem:<26}Vela {theirs}; {len(sizes)} tensors as written: {result.objective:,} "
          f"bytes, {result.status}", flush=True)  # fmt: skip
