"""Best values known of fixed instances, with their sources.

Each is proved optimal, so that no method may report a better one, and an exact method must reach
it.  Instances are told by their digest: a changed instance is another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stagepack.result import Number

if TYPE_CHECKING:
    from stagepack.instances.pipeline import PipelinePartition


@dataclass(frozen=True)
class BestKnown:
    """The best value known of one instance.

    Attributes
    ----------
    name : str
        The instance: a catalog name, or ``FILE`` or ``FILE#name`` of a public data set.
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
)


def best_known(instance: PipelinePartition) -> BestKnown | None:
    """Return what is known of exactly this instance, or None."""
    digest = instance.digest
    for known in BEST_KNOWN:
        if known.digest == digest:
            return known
    return None
