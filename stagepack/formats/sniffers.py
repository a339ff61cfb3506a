"""How files of each format are recognised: by bytes, complete or not, never by names."""

from __future__ import annotations

import re

from stagepack.instances.documents.strict import first_byte

BUFFERS = ("id", "lower", "upper", "size", "alignment", "hint", "gaps", "offset")
"""Columns of a table of buffers."""
BUFFER_ALIASES = {
    "name": "id", "buffer": "id", "buffer_id": "id", "tensor": "id", "start": "lower",
    "begin": "lower", "first": "lower", "end": "upper", "last": "upper", "bytes": "size",
    "align": "alignment",
}  # fmt: skip
"""Other names of these columns."""
FORWARD = {"time": "forward", "cycles": "forward", "forward_time": "forward", "fwd": "forward"}
"""Other names of the column of a table of layers that every such table has."""
ACTION = re.compile(
    rb"[\s,]*(?:[0-9]+(?:[FBIW][0-9]+\w*|[A-Z_]+[0-9]*)|\([0-9A-Z;_ ]+\)OVERLAP_F_B)\s*(?:,|$)"
)
"""What a rank does first, in a schedule of torch.distributed.pipelining."""
LAYOUT = re.compile(rb"(?:--pipeline-model-parallel-layout[ =])?[\"']?[EtmL0-9|*(), ]+[\"']?")
"""Stages as Megatron-LM takes them, perhaps with the name of the option."""
PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
"""How pickles begin."""
TFLITE = b"TFL3"
"""The mark of models of TensorFlow Lite, behind four other bytes."""
LIVE_RANGES, ASSIGNMENT = "HloLiveRange", "BufferAssignment:"
"""What the sections of XLA's dumps begin with."""


def native(data: bytes) -> bool:
    """Whether `data` is JSON that says which problem it is."""
    return first_byte(data) == b"{" and b'"problem"' in data


def auto_pipeline(data: bytes) -> bool:
    """Whether `data` is JSON with the words of a case file."""
    start = first_byte(data)
    if start == b"{":
        return b'"connection"' in data and b'"layerInfo"' not in data
    return start == b"[" and (b'"connection"' in data or b'"cycles"' in data)


def auto_pipeline_profile(data: bytes) -> bool:
    """Whether `data` is JSON with the words of a model profile."""
    return first_byte(data) == b"{" and b'"layerInfo"' in data


def dnn_partitioning(data: bytes) -> bool:
    """Whether `data` has nodes with times on two kinds of devices."""
    return first_byte(data) == b"{" and b'"fpgaLatency"' in data


def layer_table(data: bytes) -> bool:
    """Whether the first line of `data` names times of layers, be it with a unit: forward_ms."""
    line = data[:4096].lstrip().partition(b"\n")[0].removeprefix(b"\xef\xbb\xbf")
    if line.startswith((b"{", b"[")):  # JSON, whose keys may be the same words
        return False
    names = line.decode(errors="replace").replace('"', "").lower().split(",")
    return any(
        FORWARD.get(name, name).startswith(("forward", "fwd")) for name in map(str.strip, names)
    )


def megatron_layout(data: bytes) -> bool:
    """Whether `data` is one line of stages, letters of layers with bars between."""
    line = data[:65536].strip()
    return b"|" in line and LAYOUT.fullmatch(line) is not None


def minimalloc(data: bytes) -> bool:
    """Whether the first line of `data` looks like a header: two names of columns or more."""
    line = data[:4096].lstrip().partition(b"\n")[0]
    names = {name.strip().lower() for name in line.split(b",")}
    known = {name.encode() for name in (*BUFFERS, *BUFFER_ALIASES)}
    return len(names & known) > 1


def onnx(data: bytes) -> bool:
    """Whether `data` begins like a ModelProto: the version of its representation, then a field."""
    return len(data) > 4 and data[0] == 0x08 and data[1] < 0x20 and data[2] in b"\x12\x1a\x22\x3a"


def pipedream(data: bytes) -> bool:
    """Whether `data` has the line of an operator."""
    return b"forward_compute_time=" in data and b" -- " in data and first_byte(data) != b"{"


def tflite(data: bytes) -> bool:
    """Whether `data` has the mark of a model of TensorFlow Lite."""
    return data[4:8] == TFLITE


def torch_events(data: bytes) -> bool:
    """Whether `data` is a list of events, with those of memory among them."""
    return first_byte(data) == b"[" and b'"[memory]"' in data


def torch_memory(data: bytes) -> bool:
    """Whether `data` holds events or a snapshot of PyTorch's memory, or is a pickle."""
    object_of = b'"traceEvents"' in data or b'"device_traces"' in data
    return data.startswith(PICKLES) or torch_events(data) or object_of


def torch_schedule(data: bytes) -> bool:
    """Whether the first line of `data` begins with an action."""
    return ACTION.match(data[:65536].lstrip().partition(b"\n")[0]) is not None


def tpu_mlir(data: bytes) -> bool:
    """Whether `data` is a JSON object with the words of layer groups."""
    return first_byte(data) == b"{" and b'"timestep_table"' in data


def vela(data: bytes) -> bool:
    """Whether `data` has the heads of columns of Vela's allocation."""
    return b"Start Time" in data and b"Start Addr" in data and b"Tensor Size" in data


def xla(data: bytes) -> bool:
    """Whether `data` begins with a section of XLA's dumps."""
    return data[:4096].lstrip().startswith((LIVE_RANGES.encode(), ASSIGNMENT.encode()))
