"""All formats: what each holds, how it is recognised, and which module reads and writes it.

That module is loaded once a file is known to be its own: whoever reads a table of buffers waits for
no reader of networks.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from stagepack.contracts import Instance
from stagepack.errors import InputError, suggest
from stagepack.formats.foreign import not_recognised, refuse_foreign
from stagepack.instances.documents import strict
from stagepack.instances.words import Words
from stagepack.kinds import KINDS

BUFFERS = ("id", "lower", "upper", "size", "alignment", "hint", "gaps", "offset", "memory")
"""Columns of a table of buffers."""
BUFFER_ALIASES = {
    alias: name
    for name, aliases in {
        "id": "name buffer buffer_id buffer_name tensor tensor_id tensor_name",
        "lower": "start start_time begin first first_op first_use lifetime_start alloc alloc_time",
        "upper": "end last last_op last_use",
        "size": "bytes nbytes num_bytes size_bytes",
        "alignment": "align",
    }.items()
    for alias in aliases.split()
}
"""Other names of these columns."""
FORWARD = {"time": "forward", "cycles": "forward", "forward_time": "forward", "fwd": "forward"}
"""Other names of the column of a table of layers that every such table has."""
ACTION = re.compile(
    rb"[\s,]*(?:[0-9]+(?:[FBIW][0-9]+\w*|[A-Z_]+[0-9]*)|\([0-9A-Z;_ ]+\)OVERLAP_F_B)\s*(?:,|$)"
)
"""What a rank does first, in a schedule of torch.distributed.pipelining."""
LAYOUT = re.compile(rb"(?:--pipeline-model-parallel-layout[ =])?[\"']?[EtmL0-9|*(), ]+[\"']?")
"""Stages as Megatron-LM takes them, perhaps with the name of the option."""
DSA_PROBLEM = re.compile(rb'"problem"\s*:\s*\{')
"""What a problem of dsa-solver has in place of a kind."""
PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
"""How pickles begin."""
TFLITE = b"TFL3"
"""The mark of models of TensorFlow Lite, behind four other bytes."""
ONNX = re.compile(rb"\x08[\x00-\x1f][\x12\x1a\x22\x3a]..", re.DOTALL)
"""How a ModelProto begins: the version of its representation, then a field."""
VELA = (b"Start Time", b"Start Addr", b"Tensor Size")
"""Heads of columns of Vela's allocation."""
LIVE_RANGES, ASSIGNMENT = "HloLiveRange", "BufferAssignment:"
"""What the sections of XLA's dumps begin with."""


class Reader(Protocol):
    """The module of a format.

    Beside what every one has, it may have

    - ``WORDS``: words that mean something else here than to the kind;
    - ``BESIDE``: words that name a second file, with how names of the first end and that of the
      second in its place, which is taken where it is there and nothing else is said;
    - ``PARSERS``: by kind, what parses files that do not tell which of several they hold;
    - ``tell(data)``: which kind the bytes hold;
    - ``dump(instance, file name)``, ``solution(data, instance)`` and ``dump_solution(solution,
      instance, **options)``, as far as the format says that it has them.
    """

    CONTEXTS: Mapping[str, frozenset[str]]
    """Kinds of problems, and for each the words that may be said beside the file."""

    def parse(self, data: bytes, given: Words, file: str) -> Sequence[Instance]:
        """Return the instances of a file; `given` is what was said beside it, checked."""


@dataclass(frozen=True, repr=False)
class Format:
    """One file format: what it holds, how it is recognised, and who reads and writes it."""

    name: str  # what ``--format`` takes
    holds: Collection[str]  # the kinds of problem it can describe
    # Usual ends of file names, in lower case; reading goes by content, writing by these.
    extensions: tuple[str, ...]
    description: str  # one line
    sniff: Callable[[bytes], bool]  # whether bytes look like this format, complete or not
    home: str | Reader  # its module in ``stagepack.formats``
    writes: bool = False  # whether it can be written
    tells: bool = False  # whether its files say which of several kinds they hold
    # Which of several kinds its files are made for, where neither they nor users say one.
    usual: str | None = None
    binary: bool = False  # whether its files are no text
    # `holds_solutions`, `writes_solutions`: whether its files may hold a solution, and whether
    # solutions can be written as such files.
    holds_solutions: bool = False
    writes_solutions: bool = False

    def __repr__(self) -> str:
        return f"<Format {self.name}: {self.description}>"

    @property
    def reader(self) -> Any:
        """The module that reads and writes its files, a :class:`Reader`."""
        if not isinstance(self.home, str):
            return self.home
        return importlib.import_module(f"stagepack.formats.{self.home}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Problems it can describe."""
        return tuple(self.holds)

    @property
    def contexts(self) -> Mapping[str, frozenset[str]]:
        """What may be said beside a file, by kind of problem."""
        return cast("Mapping[str, frozenset[str]]", self.reader.CONTEXTS)

    @property
    def context(self) -> frozenset[str]:
        """What may be said beside a file of any of its kinds."""
        return frozenset().union(*self.contexts.values())

    def ending(self, name: str) -> int:
        """Return how long the end of a file's name is that tells this format: 0 for none."""
        ends = (end for end in self.extensions if name.lower().endswith(end))
        return max(map(len, ends), default=0)

    def kind_of(self, data: bytes, wanted: str | None) -> str:
        """Return the kind of problem that `data` holds.

        Refuses one that is not `wanted`, and data that fit several of which none is usual.
        """
        wanted = wanted or self.usual
        several = len(self.holds) > 1 and not self.tells
        if several and wanted in self.holds:
            return str(wanted)
        if several and wanted is None:
            raise InputError(
                "fits several kinds of problem",
                field="problem",
                remedy="say which (--kind): " + " or ".join(self.kinds),
            )
        kind: str = self.reader.tell(data) if self.tells else self.kinds[0]
        if wanted not in (None, kind):
            raise InputError(
                f"holds {kind}, not {wanted}",
                field="problem",
                remedy="give another file or kind (--kind)",
            )
        return kind


def stem_of(file: str) -> str:
    """Return a file's name without the folder, ``.gz`` and the extension."""
    name = file.removesuffix(".gz")
    stem, _, _ = name.rpartition(".")
    return stem or name


# ---------------------------------------- how files are recognised: by bytes, never by names


def an_object_with(word: bytes) -> Callable[[bytes], bool]:
    """Return what tells a JSON object by a `word` in it."""
    return lambda data: strict.first_byte(data) == b"{" and word in data


def is_native(data: bytes) -> bool:
    """Whether `data` is JSON that says which problem it is."""
    found = strict.first_byte(data) == b"{" and b'"problem"' in data
    return found and not is_dsa_solver(data)


def is_dsa_solver(data: bytes) -> bool:
    """Whether `data` is JSON with a version of a schema, and an object as problem or a solution."""
    found = strict.first_byte(data) == b"{" and b'"schema_version"' in data
    return found and (DSA_PROBLEM.search(data) is not None or is_dsa_solution(data))


def is_dsa_solution(data: bytes) -> bool:
    """Whether `data`, a document of dsa-solver, is of a solution."""
    return b'"problem_fingerprint"' in data and b'"placements"' in data


def is_auto_pipeline(data: bytes) -> bool:
    """Whether `data` is JSON with the words of a case file."""
    start = strict.first_byte(data)
    if start == b"{":
        return b'"connection"' in data and b'"layers"' in data and b'"layerInfo"' not in data
    return start == b"[" and (b'"connection"' in data or b'"cycles"' in data)


def is_layer_table(data: bytes) -> bool:
    """Whether the first line of `data` names times of layers, be it with a unit: forward_ms."""
    line = data[:4096].lstrip().partition(b"\n")[0].removeprefix(b"\xef\xbb\xbf")
    if line.startswith((b"{", b"[")):  # JSON, whose keys may be the same words
        return False
    names = line.decode(errors="replace").replace('"', "").lower().split(",")
    return any(
        FORWARD.get(name, name).startswith(("forward", "fwd")) for name in map(str.strip, names)
    )


def is_megatron_layout(data: bytes) -> bool:
    """Whether `data` is one line of stages, letters of layers with bars between."""
    line = data[:65536].strip()
    return b"|" in line and LAYOUT.fullmatch(line) is not None


def is_minimalloc(data: bytes) -> bool:
    """Whether the first line of `data` names two columns of buffers or more, or is all numbers."""
    apart, names = table_head(data)
    known = {name for name in names if name in BUFFERS or name in BUFFER_ALIASES}
    if apart == " ":  # any text has words
        times = {BUFFER_ALIASES.get(name, name) for name in known} & {"lower", "upper", "size"}
        known = times if all(map(str.isidentifier, names)) else set()
    numbers = len(names) > 2 and has_no_header(names)
    return numbers or (len(known) > 1 and not is_layer_table(data))


def table_head(data: bytes) -> tuple[str, list[str]]:
    """Return what is between the cells of a table (" ": any blanks), and those of its first line.

    They are in lower case, without quotes, and words are joined by underscores.
    """
    line = data[:4096].lstrip().partition(b"\n")[0].decode(errors="replace")
    apart = next((mark for mark in ",;\t" if mark in line), " ")
    return apart, list(map(column_name, line.split(None if apart == " " else apart)))


def column_name(cell: str) -> str:
    """Return the name of a column as it is looked up: ``Tensor Name`` is tensor_name."""
    return re.sub(r"\s+|(?<=[a-z])-", "_", cell.strip(" \t\r\"'").lower())


def has_no_header(names: Sequence[str]) -> bool:
    """Whether what should be the names of columns are numbers."""
    return all(name.lstrip("-").isdigit() for name in names)


def is_pipedream(data: bytes) -> bool:
    """Whether `data` has the line of an operator."""
    return b"forward_compute_time=" in data and b" -- " in data and strict.first_byte(data) != b"{"


def has_torch_events(data: bytes) -> bool:
    """Whether `data` is a list of events, with those of memory among them."""
    return strict.first_byte(data) == b"[" and b'"[memory]"' in data


def is_torch_memory(data: bytes) -> bool:
    """Whether `data` holds events or a snapshot of PyTorch's memory, or is a pickle."""
    object_of = b'"traceEvents"' in data or b'"device_traces"' in data
    return data.startswith(PICKLES) or has_torch_events(data) or object_of


PIPELINE, PACKING, GRAPH = "pipeline-partition", "lmem-packing", "graph-partition"
NATIVE = Format(
    name="native",
    holds=KINDS,
    extensions=(".json", ".json.gz"),
    description="Stagepack's own JSON: objects or columns, with a published schema",
    sniff=is_native,
    home="native",
    writes=True,
    tells=True,
)
FORMATS: tuple[Format, ...] = (
    NATIVE,
    Format(
        name="pipedream",
        holds=(GRAPH, PIPELINE),
        extensions=(".txt",),
        description="PipeDream profiles (graph.txt), read as a graph or a chain; need devices",
        sniff=is_pipedream,
        usual=GRAPH,
        home="pipedream.profile",
    ),
    Format(
        name="auto_pipeline",
        holds=(PIPELINE,),
        extensions=(".json",),
        description="Auto Pipeline case files: layer profiles with their cluster, several in a "
        "file",
        sniff=is_auto_pipeline,
        home="auto_pipeline.case",
    ),
    Format(
        name="auto_pipeline_profile",
        holds=(PIPELINE,),
        extensions=(".json",),
        description="Auto Pipeline's model profiles (layerInfo); need a cluster",
        sniff=an_object_with(b'"layerInfo"'),
        home="auto_pipeline.profile",
    ),
    Format(
        name="hugging_face",
        holds=(PIPELINE,),
        extensions=(".json",),
        description="config.json of Hugging Face Transformers; needs a cluster, such as 4xh100",
        sniff=an_object_with(b'"model_type"'),
        home="hugging_face.config",
    ),
    Format(
        name="layer_table",
        holds=(PIPELINE,),
        extensions=(".csv",),
        description="layers as CSV: forward, and where known name, backward, exclusive, output, "
        "...",
        sniff=is_layer_table,
        home="layer_table",
    ),
    Format(
        name="megatron_layout",
        holds=(PIPELINE,),
        extensions=(".layout",),
        description="stages as Megatron-LM takes them (--pipeline-model-parallel-layout): a "
        "solution",
        sniff=is_megatron_layout,
        home="megatron.layout",
        holds_solutions=True,
    ),
    Format(
        name="minimalloc",
        holds=(PACKING,),
        extensions=(".csv", ".csv.gz"),
        description="CSV of buffers as MiniMalloc reads it; the capacity in the file's name",
        sniff=is_minimalloc,
        home="minimalloc.buffers",
        writes=True,
        holds_solutions=True,
        writes_solutions=True,
    ),
    Format(
        name="dsa-solver",
        holds=(PACKING,),
        extensions=(".dsa.json", ".dsa.json.gz"),
        description="problems and solutions of dsa-solver: pools, several lifetimes, penalties",
        sniff=is_dsa_solver,
        home="dsa_solver.documents",
        writes=True,
        holds_solutions=True,
    ),
    Format(
        name="tpu_mlir",
        holds=(PACKING,),
        extensions=(".json",),
        description="TPU-MLIR layer groups: buffers with circular lifetimes, banks and their pairs",
        sniff=an_object_with(b'"timestep_table"'),
        home="tpu_mlir.layer_groups",
    ),
    Format(
        name="torch_schedule",
        holds=("pipeline-schedule",),
        extensions=(".csv", ".csv.gz"),
        description="schedules of torch.distributed.pipelining: a line a rank, as 0F0,0F1,0B0",
        sniff=lambda data: ACTION.match(data[:65536].lstrip().partition(b"\n")[0]) is not None,
        home="torch.schedule",
        holds_solutions=True,
        writes_solutions=True,
    ),
    Format(
        name="onnx",
        holds=(PIPELINE, GRAPH, "layer-grouping", PACKING, "phase-schedule", "pipeline-schedule"),
        extensions=(".onnx",),
        description="ONNX models: operators and shapes; weights need not be there",
        sniff=lambda data: ONNX.match(data) is not None,
        home="onnx.instances",
        binary=True,
    ),
    Format(
        name="tflite",
        holds=(PACKING,),
        extensions=(".tflite",),
        description="models of TensorFlow Lite: tensors in the arena of TensorFlow Lite Micro",
        sniff=lambda data: data[4:8] == TFLITE,
        home="tflite.arena",
        binary=True,
        holds_solutions=True,
    ),
    Format(
        name="vela",
        holds=(PACKING,),
        extensions=(".vela.txt",),
        description="tables of Arm's Vela (--verbose-allocation): tensors in its memories",
        sniff=lambda data: all(head in data for head in VELA),
        home="vela.allocation",
        holds_solutions=True,
    ),
    Format(
        name="xla",
        holds=(PACKING,),
        extensions=("-live-range.txt",),
        description="live ranges and buffer assignment that XLA dumps: values of a module",
        sniff=lambda data: (
            data[:4096].lstrip().startswith((LIVE_RANGES.encode(), ASSIGNMENT.encode()))
        ),
        home="xla.buffers",
        holds_solutions=True,
    ),
    Format(
        name="torch_memory",
        holds=(PACKING,),
        extensions=(".trace.json", ".snapshot.json"),
        description="what PyTorch allocated: traces of its profiler, snapshots of CUDA memory as "
        "JSON",
        sniff=is_torch_memory,
        home="torch.memory",
        binary=True,  # pickles, to be told what they are
    ),
    Format(
        name="dnn-partitioning",
        holds=(GRAPH,),
        extensions=(".json",),
        description="operator graphs of dnn-partitioning (Tarnawski et al.): JSON with nodes and "
        "edges",
        sniff=an_object_with(b'"fpgaLatency"'),
        home="dnn_partitioning.graph",
        writes=True,
    ),
)


def by_name(name: str) -> Format:
    """Return the format called `name`."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise InputError(
        f"unknown format {name!r}",
        field="format",
        remedy=suggest(name, [known.name for known in FORMATS]),
    )


def by_content(data: bytes, *, columns: bool = False) -> Format:
    """Return the format that `data` is written in; with `columns` named, the rest is buffers.

    JSON that says its problem is native, whatever else it looks like; so is JSON that nothing
    recognises, and then told what it lacks.
    """
    if NATIVE.sniff(data):
        return NATIVE
    found = [known for known in FORMATS if known.sniff(data)]
    if not found and strict.first_byte(data) in (b"{", b"["):
        refuse_foreign(data)
        return NATIVE
    if len(found) == 1:
        return found[0]
    if columns and not found:
        return by_name("minimalloc")
    if found:
        raise InputError(
            "could be " + " or ".join(known.name for known in found),
            field="format",
            remedy="name the format (format=, --format)",
        )
    refuse_foreign(data)
    raise not_recognised(data)
