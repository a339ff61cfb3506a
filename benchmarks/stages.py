"""Spans of schedules on processes of this machine: predicted from a measured profile, and measured.

    python -m benchmarks.stages [--ranks 4] [--microbatches 8] [--repeats 5]

prints the table of `benchmarks/stages.md`: an encoder is profiled layer by layer in one thread, cut
into as many stages as there are ranks, and run by PyTorch under the plan's own schedule (split
backward passes), 1F1B and GPipe.  Needs the extra `torch`.
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import nn

import stagepack as sp
from stagepack.planning.measured.figures import PlanMeasure

ORDERS = ("1f1b", "gpipe")
"""Beside the plan's own."""


def model(layers: int, width: int) -> nn.Module:
    """Return an encoder without dropout."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def measured(ranks: int, microbatches: int, repeats: int) -> PlanMeasure:
    """Return a plan of an encoder beside what its stages took.

    Parameters
    ----------
    ranks : int
    microbatches, repeats : int
    """
    torch.set_num_threads(1)
    module, sample = model(8, 256), (torch.randn(2, 64, 256),)
    profile = sp.profile_model(module, sample, depth=2, measure=True, training=True)
    chain = sp.PipelinePartition.from_profile(
        profile, sp.Cluster.uniform(ranks), microbatches=microbatches
    )
    plan = sp.plan_model(chain, time_limit=10, split=True)
    return sp.measure_plan(module, plan, sample, depth=2, orders=ORDERS, repeats=repeats)


def main() -> None:
    """Print a row an order."""
    parser = argparse.ArgumentParser(description="Spans of schedules, predicted and measured.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    found = measured(given.ranks, given.microbatches, given.repeats)
    rows = {(row.what, row.figure): row for row in found.schedules}
    load = os.getloadavg()[0]
    print(f"{found.ranks} ranks on {found.cores} processors, torch {torch.__version__}, "
          f"load {load:.0f}\n")  # fmt: skip
    header = ("schedule", "span, predicted ms", "measured ms", "ratio",
              "makespan, replayed ms", "measured ms", "ratio")  # fmt: skip
    print(f"| {' | '.join(header)} |\n{'|---' * len(header)}|")
    for name in dict.fromkeys(what for what, _ in rows):
        span, replay = rows[name, "span"], rows[name, "replayed"]
        cells = (
            f"{1e3 * one.estimated:,.0f} | {1e3 * one.actual:,.0f} | {one.ratio or 0:.2f}"
            for one in (span, replay)
        )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
