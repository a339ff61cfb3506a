"""Files of other tools that hold no instance: what they are, and what to give in their place."""

from __future__ import annotations

import re

from stagepack.errors import InputError, shown
from stagepack.instances.documents import strict

FOREIGN: tuple[tuple[str, str, str], ...] = (
    (
        r'\{(?=.*"hidden_size"|.*"architectures")',
        "is a configuration of a model that does not say its family",
        'write "model_type": "llama" (or what it is) into it, and name devices: --cluster 4xh100',
    ),
    (
        r'\{.*"weight_map"',
        "lists files of weights",
        "give config.json, which lies beside it, and devices: --cluster 4xh100",
    ),
    (
        r'\{.*"(?:train_batch_size|train_micro_batch_size_per_gpu|zero_optimization)"',
        "is a configuration of DeepSpeed",
        "give the layers: config.json, ONNX or a table; --as deepspeed writes stages for it",
    ),
    (
        r'\{(?=.*"connection")|\{(?=.*"devices")(?=.*"(?:send|recv|speed|memory)")',
        "is a table of devices without a model",
        "give the model's file first; devices of stagepack's own form go to --cluster FILE",
    ),
    (r'\{(?=.*"lanes")', "is a chip without operators", "give a model, and: --set chip=FILE"),
    (
        r"(?:\s*#.*\n)*\s*(?:\[\[?[A-Za-z]|\w+ = )",
        "is TOML, in which only suites are written",
        "give it to stagepack compare",
    ),
    (
        r"PK\x03\x04|.{8}\{\"",
        "is an archive of weights, which says nothing of how long layers take",
        "give config.json or an ONNX model; in Python, call sp.profile_model(module, inputs)",
    ),
    (
        r"(?:strict\s+)?(?:di)?graph\b[^{;]*\{",
        "is a graph in DOT, which is only written here",
        "write the graph as JSON: stagepack schema graph",
    ),
    (
        r"HloModule\b",
        "is a program of XLA",
        "dump with --xla_dump_to=FOLDER, and give the file that ends in -live-range.txt",
    ),
    (
        r"(?:#!.*\n|\s*(?:import|from) \w+)",
        "is a program in Python",
        "in it, call sp.profile_model(module, inputs) and give sp.solve what it returns",
    ),
    (
        r"(?:.*\n)*Accelerator configuration",
        "is Vela's summary",
        "run it with --verbose-allocation, and give what it prints",
    ),
)
"""How files begin that people try, by a regular expression; what they are; a remedy."""

COLUMNS = (
    "a table of buffers needs columns id,lower,upper,size (--columns lower=NAME,upper=NAME,"
    "size=NAME names them); one of layers, with commas, name,forward,backward,parameters,output"
)


def refuse_foreign(data: bytes) -> None:
    """Refuse a file that is known to be something else."""
    begin = data[: strict.CHUNK].decode("latin-1")
    for how, what, remedy in FOREIGN:
        if re.match(how, begin, re.DOTALL if how.startswith(r"\{") else 0):
            raise InputError(what, remedy=remedy)


def not_recognised(data: bytes) -> InputError:
    """Return the error of a text that no format knows, with its first line."""
    line = data[: strict.CHUNK].strip().partition(b"\n")[0].decode(errors="replace").strip()
    return InputError(
        f'not recognised: the first line is "{shown(line, 80)}"',
        remedy=f'{COLUMNS}; JSON begins with {{"problem": (stagepack schema KIND)',
    )
