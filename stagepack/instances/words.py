"""The vocabulary of instances: each parameter with its type, range, unit and meaning.

It is the same for the catalog, for information that a file lacks, for the options of the command
line, and for schemas.  ``batch=8`` in Python, ``"8"`` on the command line and an invalid
``"eight"`` are therefore treated alike everywhere.  The parameters of a single problem are in its
own folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from operator import index
from typing import Any, TypeVar

from stagepack import files
from stagepack.errors import InputError

LARGEST = 2**62
BANDWIDTHS = {
    f"{prefix}{unit}": Fraction(base**power * each, 2**30 * bits)
    for power, prefix in ((1, "K"), (2, "M"), (3, "G"), (4, "T"))
    for base, infix in ((1000, ""), (1024, "i"))
    for unit, each, bits in ((f"{infix}B/s", 1, 1), (f"{infix}bit/s", 1, 8))
}
"""Units of bandwidth, in 2**30 bytes a second."""

WordT = TypeVar("WordT", bound=StrEnum)
Words = Mapping[str, Any]
"""What is said beside a file, or of an entry of the catalog: words and their values."""


@dataclass(frozen=True)
class Parameter:
    """One word: what it means, and which values it takes."""

    name: str
    type: type  # int, float, bool, str, or list (of floats)
    description: str  # meaning and unit
    # `least`, `most`: inclusive range of a number.
    least: float = 0
    most: float = LARGEST
    # The words a string may be; empty: any.  Those of an objective depend on the problem.  Of a
    # number: words that it may be instead.
    choices: tuple[str, ...] = ()
    unit: str = ""  # what a number counts, where the command line should say so: "bytes"
    # Under which heading the command line has an option of this name: "instance", "machine" or
    # "freedom"; empty: under none, it is said by ``--set``.
    option: str = ""
    # How names of files end that may be given in place of a choice; empty: none may.
    ending: str = ""
    # Units that may stand behind a number, and what they are worth.
    scales: Mapping[str, Fraction] = field(default_factory=dict)
    each: bool = False  # whether devices may have a number each: a list, or text with commas
    # Whether it is said for each of several names: ``dim.seq=4``, or ``dim={"seq": 4}``.
    named: bool = False

    def of(self, value: object, choices: tuple[str, ...] = (), whose: str = "") -> Any:
        """Return `value`, or what it says as text, as the type that the word has, within its range.

        The `choices` of a string, where they are not the word's own, are the words of `whose`.
        """
        if self.type is list or self.each:
            items = value.split(",") if isinstance(value, str) else value
            if hasattr(items, "tolist"):
                items = items.tolist()
            if not isinstance(items, list | tuple):
                items = [items]
            if not items:
                raise self._refusal(value)
            found = [
                self._number(item, float if self.type is list else self.type) for item in items
            ]
            return found if self.type is list or len(found) > 1 else found[0]
        if self.type is bool:
            return value if value in self.choices else self._truth(value)
        if self.type is not str:
            instead = isinstance(value, str) and value in self.choices
            return value if instead else self._number(value, self.type)
        if not isinstance(value, str):
            raise self._refusal(value)
        allowed = choices or self.choices
        named = self.ending and value.endswith(self.ending)
        if allowed and value not in allowed and not named:
            raise InputError(
                f"unknown {self.name} {str(value)!r}{whose and f' for {whose}'}",
                field=self.name,
                remedy=f"choose one of {', '.join(allowed)}"
                + (self.ending and f", or give a file that ends with {self.ending}"),
            )
        return str(value)

    def _number(self, value: Any, wanted: object) -> int | float:
        number: int | float
        try:
            if isinstance(value, bool):
                raise TypeError
            if isinstance(value, str):
                text, scale = self._parted(value.strip().replace("_", ""))
                if self.unit == "bytes":
                    number = files.size_of(text)
                elif wanted is int:
                    if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
                        raise ValueError
                    number = int(text)
                else:
                    number = float(text) if scale is None else float(Fraction(float(text)) * scale)
            elif wanted is int:
                number = index(value)
            else:
                # Whole numbers stay whole: they print and hash as they were given.
                number = value if isinstance(value, int) else float(value)
            finite = math.isfinite(number)
        except (TypeError, ValueError, OverflowError):
            raise self._refusal(value) from None
        if not finite or not self.least <= number <= self.most:
            raise self._refusal(value)
        return number

    def _parted(self, text: str) -> tuple[str, Fraction | None]:
        """Return a number without the unit behind it, and what that is worth."""
        parts = re.fullmatch(r"(.*[0-9.])\s*([A-Za-z]+/s)", text)
        if parts is None or parts[2] not in self.scales:
            return text, None
        return parts[1], self.scales[parts[2]]

    def _truth(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        word = value.strip().lower() if isinstance(value, str) else None
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
        raise self._refusal(value)

    def _refusal(self, value: object) -> InputError:
        if self.type is bool:
            want = ", ".join((*self.choices, "true or false"))
        elif self.type is str:
            want = "a word"
        else:
            what = {int: "an integer", float: "a number", list: "numbers"}[self.type]
            want = f"{what} from {_shown(self.least)} to {_shown(self.most)}"
            want += "".join(f" or {word}" for word in self.choices)
            want += ", or with its unit" if self.scales else ""
            want += ", such as 1e9 or 16GiB" if self.unit == "bytes" else ""
        return InputError(
            f"{repr(value)[:60]} will not do as {self.name}",
            field=self.name,
            remedy=f"give {want} ({self.description})",
        )


BANDWIDTH = Parameter(
    "bandwidth",
    float,
    "bandwidth of every link: 10GB/s (10**9 bytes a second), 10GiB/s, 80Gbit/s; a bare 10 is "
    "10GiB/s",
    1e-9,
    1e12,
    unit="rate",
    option="machine",
    scales=BANDWIDTHS,
)
SHARED = (
    Parameter("objective", str, "what to minimise", option="instance"),
    # the machine
    Parameter("devices", int, "number of devices", 1, 2**20, option="machine"),
    Parameter(
        "cluster",
        str,
        "devices and links: 4xh100, 2x8xh100 (two nodes) and others (stagepack list clusters), "
        "ipu-pod8, or a .json file",
        option="machine",
    ),
    BANDWIDTH,
    Parameter(
        "capacity",
        int,
        "usable bytes of every device, or of each (16GiB,32GiB), or of the memory to pack",
        unit="bytes",
        option="instance",
    ),
    Parameter("speed", list, "relative speed of the devices, one or one each", 1e-9, 1e9),
    # the job
    Parameter(
        "microbatches",
        int,
        "microbatches of a training step; of a chain, if not said, as many as devices",
        1,
        2**20,
        option="machine",
    ),
    Parameter("training", bool, "count backward passes, gradients and stashes", option="machine"),
    Parameter(
        "unit",
        str,
        "time unit of the instance",
        choices=("us", "ms", "ns"),
        unit="unit",
        option="instance",
    ),
    # the network
    Parameter("batch", int, "samples of a batch (of a microbatch when training)", 1, 2**16),
    Parameter("sequence", int, "tokens of a sample", 1, 2**16),
    Parameter("dim", int, "size of a named dimension: dim.seq=128", 1, 2**40, named=True),
    Parameter("shape", str, "shape of an input of an ONNX model: shape.x=1x3x48x320", named=True),
    Parameter("image", int, "height and width of an image in pixels", 32, 2**13),
    Parameter("bytes_per_value", int, "bytes of a weight or activation", 1, 8),
    Parameter("state_bytes", int, "bytes of optimiser state per weight (training)", 0, 64),
    Parameter("granularity", str, "what a layer is", choices=("block", "matmul")),
    Parameter(
        "tied",
        bool,
        "weights that several layers use: true or together, on one device; copied, on each stage "
        "of a chain that uses them; of a network false, each layer has its own",
        choices=("copied", "together"),
        option="freedom",
    ),
    Parameter("utilisation", float, "share of the peak arithmetic reached", 1e-3, 1),
    # the generators
    Parameter("layers", int, "number of layers", 1, 2**24),
    Parameter("seed", int, "seed of the random numbers"),
    Parameter("slack", float, "capacity beyond the least that is feasible", 0, 1e3),
)
"""Words of more than one problem."""
CAPACITIES = Parameter(
    "capacity", int, "usable bytes of every device, or of each in turn", unit="bytes", each=True
)
"""`capacity` of problems whose devices may differ."""


def require_known(given: Words, known: Iterable[str], what: str) -> None:
    """Refuse what is `given` to `what` by another name than those `known`, with a list of these."""
    known = sorted(known)
    for name in given:
        if name not in known:
            raise InputError(
                f"{what} takes no parameter {name!r}",
                field=name,
                remedy="it takes " + (", ".join(known) or "none"),
            )


def member(given: str, words: type[WordT], name: str) -> WordT:
    """Return the one of `words` that is `given`; messages name the field, `name`."""
    if given not in list(words):
        raise InputError(
            f"unknown {name} {str(given)[:40]!r}",
            field=name,
            remedy="choose one of " + ", ".join(words),
        )
    return words(given)


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
