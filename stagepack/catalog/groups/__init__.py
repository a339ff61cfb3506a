"""Named layer groupings: networks in 8-bit integers on chips with lanes, and generated ones.

The networks were read by :mod:`stagepack.formats.onnx.instances` from the graphs without
weights that ship in the package onnx (``onnx/backend/test/data/light``, Apache-2.0): those of the
ONNX model zoo, in single precision there, at 224 x 224.
"""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.resources import files
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np

from stagepack.catalog.generator import Generator
from stagepack.catalog.groups.examples import balanced_rows, schedule_then_place
from stagepack.contracts import JsonObject
from stagepack.instances.documents import strict
from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind, Source, Weight
from stagepack.instances.groups.native import Document, parse

NETWORKS = {
    "alexnet": "AlexNet: 5 convolutions, 3 fully connected layers",
    "densenet121": "DenseNet-121: every layer of a block reads all before it",
    "inception-v1": "Inception v1 (GoogLeNet): blocks of four branches",
    "inception-v2": "Inception v2: blocks of four branches, smaller kernels",
    "resnet50": "ResNet-50: bottleneck blocks with skips",
    "shufflenet": "ShuffleNet: grouped and depthwise convolutions, shuffled channels",
    "squeezenet": "SqueezeNet: blocks that squeeze and expand",
    "vgg19": "VGG-19: 16 convolutions, 3 fully connected layers",
    "zfnet512": "ZFNet-512: 5 wide convolutions, 3 fully connected layers",
}
MACHINE: JsonObject = {
    "chip": "bm1684x",
    "slicing": "n-then-h",
    "standalone": "any",
    "timesteps": "nearest",
    "order": "given",
    "max_slices": 64,
    "max_group": 64,
    "overlap_limit": "half",
    "capacity": None,
    "rates": None,
}
OPTIONS = {**MACHINE, "batch": 1}


@lru_cache(maxsize=len(NETWORKS))
def _document(name: str) -> Document:
    """Return the file of a network."""
    data = files(__name__).joinpath(f"networks/{name}.json").read_bytes()
    return strict.decode(data, Document)


def _network(name: str, **given: Any) -> LayerGrouping:
    document = _document(name)
    batch = given.pop("batch")
    grown = msgspec.structs.replace(
        document,
        operators=[
            msgspec.structs.replace(op, shape=(batch * op.shape[0], *op.shape[1:]))
            for op in document.operators
        ],
        inputs=[
            msgspec.structs.replace(source, shape=(batch * source.shape[0], *source.shape[1:]))
            for source in document.inputs
        ],
    )
    return _changed(grown, given, f"{name}-{PurePath(given['chip']).stem}")


def _changed(document: Document, given: JsonObject, name: str) -> LayerGrouping:
    """Return the instance of a document, with what is said of a chip and of groups."""
    said = {word: value for word, value in given.items() if value is not None}
    return parse(document, {**said, "name": name})


def _blocks(operators: int, channels: int, rows: int, seed: int, **given: Any) -> LayerGrouping:
    """Return a chain of blocks: a convolution of 1 x 1, one of 3 x 3, and a sum around both."""
    rng = np.random.default_rng(seed)
    shape = (1, channels, rows, rows)
    found: list[Operator] = []
    for at in range(operators):
        before = found[-1].name if found else "x"
        if at % 3 == 2:
            skipped = found[-3].name if at > 2 else "x"
            found.append(
                Operator(
                    name=f"add{at}",
                    kind=OperatorKind.ELEMENTWISE,
                    inputs=(before, skipped),
                    shape=shape,
                    in_place=True,
                )
            )
            continue
        kernel = 3 if at % 3 else 1
        found.append(
            Operator(
                name=f"conv{at}",
                kind=OperatorKind.CONV,
                inputs=(before,),
                shape=shape,
                kernel=(kernel, kernel),
                padding=(kernel // 2,) * 4,
                cycles=int(rng.integers(2_000, 60_000)),
                weights=(Weight(channels=channels, values=channels * kernel**2),),
            )
        )
    document = Document(
        problem="layer-grouping",
        version=1,
        operators=found,
        inputs=[Source(name="x", shape=shape)],
    )
    return _changed(document, given, f"blocks-{operators}")


GENERATORS: dict[str, Generator] = {
    **{name: Generator(partial(_network, name), OPTIONS, what) for name, what in NETWORKS.items()},
    "random/blocks": Generator(
        _blocks,
        {"operators": 50, "channels": 256, "rows": 56, "seed": 0, **MACHINE},
        "A chain of blocks with skips, in which operators take unlike times",
    ),
    "examples/balanced-rows": Generator(
        balanced_rows, {}, "Two operators whose most balanced rows are not the quickest"
    ),
    "examples/schedule-then-place": Generator(
        schedule_then_place, {}, "Three operators whose best timesteps fit, but have no addresses"
    ),
}

MEASURED = ("bm1684x", "bm1688", "cv184x")
"""Chips whose transfers were measured, see :mod:`.chips`; those of the others are assumed."""

SUITE: tuple[tuple[str, JsonObject], ...] = (
    *((name, {"chip": chip}) for name in NETWORKS for chip in MEASURED),
    ("inception-v1", {"chip": "cv184x", "order": "free"}),
    ("resnet50", {"chip": "bm1690", "order": "free"}),
    ("squeezenet", {"chip": "bm1684", "timesteps": "free"}),
    ("zfnet512", {"chip": "generic", "timesteps": "free"}),
    ("squeezenet", {"chip": "cv184x", "order": "free", "timesteps": "free"}),
)
"""Every network on three chips, and orders and timesteps that are free, for methods that ask it."""

TOUR: tuple[str, JsonObject, tuple[str, ...]] = (
    "squeezenet",
    {"chip": "cv184x"},
    ("layerwise", "greedy-tail", "dp", "milp"),
)
"""What a first comparison shows: an instance, and methods from a rule to a proof."""
