"""The words in which people ask for instances: every parameter's name, type and range.

One vocabulary for the catalog and for what a file does not say, so that ``batch=8`` from Python,
``"8"`` from a command line and a wrong ``"eight"`` are treated alike everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from stagepack.result import InputError

OBJECTIVES = {
    "pipeline-partition": ("bottleneck", "transfer-bounded", "sum", "overlap"),
    "lmem-packing": ("peak", "fit", "bank-conflicts", "moves", "spill"),
    "pipeline-schedule": ("makespan", "span"),
    "phase-schedule": ("time",),
}
LARGEST = 2**62


@dataclass(frozen=True)
class Parameter:
    """One parameter: what it means, and which values it takes.

    Attributes
    ----------
    name : str
    type : type
        int, float, bool, str, or list (of floats).
    description : str
        Meaning and unit.
    least, most : int or float
        Inclusive range of a number.
    choices : tuple of str
        The words a string may be; empty: any.  Those of an objective depend on the problem.
    """

    name: str
    type: type
    description: str
    least: float = 0
    most: float = LARGEST
    choices: tuple[str, ...] = ()

    def choices_of(self, kind: str) -> tuple[str, ...]:
        """Return the words that fit a kind of problem."""
        return OBJECTIVES[kind] if self.name == "objective" else self.choices


VOCABULARY = {
    parameter.name: parameter
    for parameter in (
        # the machine
        Parameter("devices", int, "number of devices", 1, 2**20),
        Parameter("cluster", str, "name of a cluster of the catalog"),
        Parameter("bandwidth", float, "GB/s (2**30 bytes a second) of every link", 1e-9, 1e12),
        Parameter("capacity", int, "usable bytes of every device, or of the memory to pack"),
        Parameter("speed", list, "relative speed of the devices, one or one each", 1e-9, 1e9),
        # the job
        Parameter("training", bool, "count backward passes, gradients and stashes"),
        Parameter("microbatches", int, "microbatches of a training step", 1, 2**20),
        Parameter("objective", str, "what to minimise", choices=sum(OBJECTIVES.values(), ())),
        Parameter("unit", str, "time unit of the instance", choices=("us", "ms", "ns")),
        Parameter("host_transfer", bool, "every device waits for the exchange with the host"),
        Parameter("fewer_stages", bool, "devices may stay unused"),
        Parameter("free_order", bool, "stages may run on the devices in any order"),
        # the network
        Parameter("batch", int, "samples of a batch (of a microbatch when training)", 1, 2**16),
        Parameter("sequence", int, "tokens of a sample", 1, 2**16),
        Parameter("image", int, "height and width of an image in pixels", 32, 2**13),
        Parameter("bytes_per_value", int, "bytes of a weight or activation", 1, 8),
        Parameter("state_bytes", int, "bytes of optimiser state per weight (training)", 0, 64),
        Parameter("granularity", str, "what a layer is", choices=("block", "matmul")),
        Parameter("tied", bool, "the head uses the embedding's weights, not a copy"),
        Parameter("utilisation", float, "share of the peak arithmetic reached", 1e-3, 1),
        # the memory
        Parameter("alignment", int, "alignment of buffers that have none of their own", 1, 2**40),
        Parameter("period", int, "lifetimes are circular modulo this", 1),
        Parameter("fixed", bool, "the offsets of the file are given"),
        Parameter("previous", bool, "the offsets of the file are the old placement"),
        # the schedule
        Parameter("forward", int, "cycles of a forward pass", 1, 2**40),
        Parameter("backward", int, "cycles of B, 0: inference", 0, 2**40),
        Parameter("weight", int, "cycles of W, 0: B is the whole backward pass", 0, 2**40),
        Parameter("latency", int, "cycles from device to device", 0, 2**40),
        Parameter("chunks", int, "stages of a device", 1, 2**10),
        Parameter("split", bool, "split backward passes into B and W"),
        Parameter("steps", int, "optimiser steps of a run", 1, 2**31),
        # the phases
        Parameter(
            "modes", str, "allowed loops: naive, compute, io, io_overlapped (commas between)"
        ),
        Parameter("policies", str, "what backward passes need: stash, keep, recompute (commas)"),
        Parameter("accumulation", int, "steps of gradient accumulation (of a loop)", 1, 2**31),
        Parameter("free_batch", bool, "the microbatch is free, the global batch is not"),
        Parameter("data_parallel", int, "replicas, which shard variables and state", 1, 2**20),
        Parameter("prefetch", bool, "load variables of the next phase beside a loop"),
        Parameter("recomputations", int, "how often a layer may be computed again", 0, 2**20),
        Parameter("budget", float, "memory: 0 as checkpoints need it, 1 to keep everything", 0, 1),
        # the generators
        Parameter("layers", int, "number of layers", 1, 2**24),
        Parameter("buffers", int, "number of buffers", 1, 2**24),
        Parameter("peak", int, "the optimum: height of the rectangle, in bytes", 1, 2**40),
        Parameter("banks", int, "number of banks", 1, 2**10),
        Parameter("copies", int, "how many gadgets, one after the other", 1, 2**20),
        Parameter("levels", int, "how often sizes double", 1, 12),
        Parameter("kept", int, "buffers that a layer holds for long", 0, 2**20),
        Parameter("spread", float, "deviation of the logarithm of lifetimes", 0, 10),
        Parameter("seed", int, "seed of the random numbers"),
        Parameter("slack", float, "capacity beyond the least that is feasible", 0, 1e3),
    )
}


def coerce(name: str, value: Any, kind: str) -> Any:
    """Return `value` as the type that the parameter `name` of the vocabulary has.

    Raises
    ------
    InputError
        Naming the parameter, when the value is of another type or out of range, or no objective
        of this `kind` of problem.
    """
    parameter = VOCABULARY[name]
    choices = parameter.choices_of(kind)
    if parameter.type is list:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Sequence):
            items = items.tolist() if hasattr(items, "tolist") else [items]
        if not isinstance(items, list | tuple):
            items = [items]
        if not items:
            raise _refusal(parameter, value)
        return [_number(parameter, item, float) for item in items]
    if parameter.type is bool:
        return _truth(parameter, value)
    if parameter.type is str:
        if not isinstance(value, str):
            raise _refusal(parameter, value)
        if choices and value not in choices:
            raise InputError(
                f"unknown {name} {str(value)!r}"
                + (f" for {kind}" if value in parameter.choices else ""),
                field=name,
                remedy="choose one of " + ", ".join(choices),
            )
        return str(value)
    return _number(parameter, value, parameter.type)


def require_known(given: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse a parameter that `what` does not know, by name.

    Raises
    ------
    InputError
        Listing the known ones.
    """
    known = sorted(known)
    for name in given:
        if name not in known:
            raise InputError(
                f"{what} takes no parameter {name!r}",
                field=name,
                remedy="it takes " + (", ".join(known) or "none"),
            )


def _number(parameter: Parameter, value: Any, wanted: type) -> int | float:
    number: int | float
    try:
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, str):
            text = value.strip().replace("_", "")
            if wanted is int:
                if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
                    raise ValueError
                number = int(text)
            else:
                number = float(text)
        elif wanted is int:
            number = index(value)
        else:
            # Whole numbers stay whole: they print and hash as they were given.
            number = value if isinstance(value, int) else float(value)
        finite = math.isfinite(number)
    except (TypeError, ValueError, OverflowError):
        raise _refusal(parameter, value) from None
    if not finite or not parameter.least <= number <= parameter.most:
        raise _refusal(parameter, value)
    return number


def _truth(parameter: Parameter, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else None
    if word in ("true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise _refusal(parameter, value)


def _refusal(parameter: Parameter, value: Any) -> InputError:
    if parameter.type is bool:
        want = "true or false"
    elif parameter.type is str:
        want = "a word"
    else:
        what = {int: "an integer", float: "a number", list: "numbers"}[parameter.type]
        want = f"{what} from {_shown(parameter.least)} to {_shown(parameter.most)}"
    return InputError(
        f"{repr(value)[:60]} will not do as {parameter.name}",
        field=parameter.name,
        remedy=f"give {want} ({parameter.description})",
    )


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
