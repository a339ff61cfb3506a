"""Best values known of fixed instances, with their sources.

Of one that is proved optimal no method may report a better one, and an exact method must reach it.
Instances are told by their digest: a changed instance is another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stagepack.result import Number

if TYPE_CHECKING:
    from stagepack.instances.packing import LmemPacking
    from stagepack.instances.pipeline import PipelinePartition
    from stagepack.instances.schedule import PipelineSchedule


@dataclass(frozen=True)
class BestKnown:
    """The best value known of one instance.

    Attributes
    ----------
    name : str
        The instance: a catalog name (with its parameters), or ``FILE`` or ``FILE#name`` of a
        public data set.
    digest : str
    objective : str
    value : int or float
    proved : bool
        Whether the value is optimal.
    source : str
        Who says so, or how it was proved.
    """

    name: str
    digest: str
    objective: str
    value: Number
    proved: bool
    source: str


ZERO_BUBBLE = "the authors of Zero Bubble, sail-sg/zero-bubble-pipeline-parallelism"

# Layer groups of blazeface_bm1688.json: least tops.
GROUPS = (
    ("blazeface-g0", "059b19b9a1ea5cb3", 65808),
    ("blazeface-g1", "06b2a376799f372c", 43152),
    ("blazeface-g2", "dd6b00e0ca626b26", 24720),
    ("blazeface-g3", "526d6f14c0a29cdc", 16576),
    ("blazeface-g4", "d840912c3082ef46", 19760),
    ("blazeface-g5", "ec730377258f526e", 10544),
    ("blazeface-g6", "271ae3f24befc058", 5936),
    ("blazeface-g7", "df8f72023870fe2a", 6000),
    ("blazeface-g8", "a41a6bdce46b9832", 7120),
    ("blazeface-g9", "83cf573d4a51681f", 8800),
    ("blazeface-g10", "7451a4909673ee26", 7648),
    ("blazeface-g11", "45d405c3f04ae0a3", 4416),
    ("blazeface-g12", "3eef0f7ee3f39179", 3584),
)

BEST_KNOWN: tuple[BestKnown, ...] = (
    BestKnown(
        "partition_cases.json#even2",
        "8e674ac6c410855e",
        "transfer-bounded",
        30000,
        True,
        "answers of the Auto Pipeline test cases",
    ),
    BestKnown(
        "partition_cases.json#shared2",
        "e24aa5c1bdc357ab",
        "transfer-bounded",
        40000,
        True,
        "answers of the Auto Pipeline test cases",
    ),
    BestKnown(
        "partition_cases.json#memory2",
        "30e45d8a7c823147",
        "transfer-bounded",
        50000,
        True,
        "answers of the Auto Pipeline test cases",
    ),
    BestKnown(
        "vgg16_graph.txt",
        "57a73353c39bd5ca",
        "bottleneck",
        216450,
        True,
        "exhausted search; 4 devices, training, microseconds",
    ),
    BestKnown(
        "pipeline/bert-base granularity=matmul",
        "f253a29ad064224f",
        "transfer-bounded",
        808150,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "pipeline/vit-l-16 cluster=ipu-pod8 objective=sum",
        "1d3df29ebc604a11",
        "sum",
        2553147,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "pipeline/resnet-50 granularity=matmul cluster=ipu-pod8",
        "6b8cc9ee418291c0",
        "transfer-bounded",
        2390028,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "pipeline/bert-large training=True batch=1 cluster=ipu-pod8 objective=sum",
        "a9baa82a154c7d92",
        "sum",
        525456,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "pipeline/gpt2-small training=True batch=1 objective=bottleneck",
        "e986fac2f70e8433",
        "bottleneck",
        1715505,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "pipeline/vgg-16 training=True batch=4 objective=overlap",
        "a98115d6c5e74be4",
        "overlap",
        2522784,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "pipeline/random/heterogeneous",
        "8ef9e1d29a445a4b",
        "transfer-bounded",
        13980529,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "pipeline/random/unlike-devices",
        "19e93762307e20e7",
        "transfer-bounded",
        13899599,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "packing/random/planted",
        "8a902e48d2f4749e",
        "peak",
        1048576,
        True,
        "cut from a rectangle of this height",
    ),
    BestKnown(
        "packing/random/pinwheel",
        "9c839f0ce61aa551",
        "peak",
        1048576,
        True,
        "cut from a rectangle of this height",
    ),
    BestKnown(
        "packing/random/evolved",
        "efd41e04ce494260",
        "peak",
        892,
        True,
        "exhausted search of its parts, by two methods",
    ),
    BestKnown(
        "packing/above-load",
        "5209fab718fa45ae",
        "peak",
        17,
        True,
        "exhausted search, by two methods",
    ),
    BestKnown(
        "packing/adversarial/size",
        "d53c090c7e18f183",
        "peak",
        2097157,
        True,
        "the load, and a packing that reaches it",
    ),
    BestKnown(
        "packing/adversarial/start",
        "856020ded7cf12bf",
        "peak",
        64,
        True,
        "the load, and a packing that reaches it",
    ),
    BestKnown(
        "packing/adversarial/lifetime",
        "3f3529077a9dc977",
        "peak",
        64,
        True,
        "the load, and a packing that reaches it",
    ),
    BestKnown(
        "packing/adversarial/all",
        "56d768b2c6434dcc",
        "peak",
        67109024,
        True,
        "the load, and a packing that reaches it",
    ),
    BestKnown(
        "packing/activations/bert-base training=True",
        "6fc964a7a7d73531",
        "peak",
        312985600,
        True,
        "the load, and a packing that reaches it",
    ),
    BestKnown(
        "packing/activations/resnet-50 training=True",
        "fc68067d7111602f",
        "peak",
        524238848,
        True,
        "the load, and a packing that reaches it",
    ),
    BestKnown(
        "packing/random/pipelined",
        "da225a1f9580c253",
        "bank-conflicts",
        224832,
        True,
        "exhausted search by CP-SAT",
    ),
    BestKnown(
        "C.1048576.csv",
        "f0e32678eda6a472",
        "peak",
        1039360,
        True,
        "exhausted search; MiniMalloc fits it at 1048576",
    ),
    BestKnown(
        "C.1048576.csv",
        "a09721481a190f6d",
        "fit",
        1039360,
        True,
        "exhausted search; MiniMalloc fits it at 1048576",
    ),
    *(
        BestKnown(
            f"blazeface_bm1688.json#{name}",
            digest,
            "peak",
            top,
            True,
            "exhausted search by CP-SAT",
        )
        for name, digest, top in GROUPS
    ),
    BestKnown(
        "schedule/zero-bubble/small",
        "b0a1b8d7e055d6f1",
        "span",
        193,
        True,
        "exhausted search by CP-SAT",
    ),
    BestKnown(
        "schedule/zero-bubble/small capacity=14",
        "49efec4b729198d0",
        "span",
        183,
        True,
        "exhausted search by CP-SAT",
    ),
    BestKnown(
        "schedule/uniform capacity=8 objective=span",
        "0e108c009f7971be",
        "span",
        27,
        True,
        "exhausted search by CP-SAT",
    ),
    BestKnown(
        "schedule/uniform capacity=16 objective=span",
        "a69bac7e3feadb4f",
        "span",
        24,
        True,
        "the work of a device, and a schedule without a bubble",
    ),
    BestKnown(
        "schedule/zero-bubble/measured-4x12",
        "15166804bc0f9432",
        "span",
        178898,
        True,
        f"{ZERO_BUBBLE}, who had 177816 as a bound; proved by the ramp bound of "
        "stagepack.heuristics.schedule.bounds",
    ),
    BestKnown(
        "schedule/zero-bubble/measured-8x32",
        "1d64e22fabf797f7",
        "span",
        2514067,
        True,
        "list scheduling, and the ramp bound of stagepack.heuristics.schedule.bounds; "
        f"{ZERO_BUBBLE}, had 2517463, and 2511520 as a bound",
    ),
)


def best_known(instance: PipelinePartition | LmemPacking | PipelineSchedule) -> BestKnown | None:
    """Return what is known of exactly this instance, or None."""
    digest = instance.digest
    for known in BEST_KNOWN:
        if known.digest == digest:
            return known
    return None
