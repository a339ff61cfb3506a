"""Published layouts of training runs beside the best one under the cost model.

    python -m benchmarks.layouts

prints, for each, the step of the published degrees and of the best layout, with the bound over all,
and the CPU seconds of both.  Published runs deal several stages to a device, overlap links with
computing, and compute in 8 bits, of which the model knows nothing: steps are not those measured.

Sources: Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM*, 2021, table 1 (A100 80 GB, 2,048 tokens); Dubey et al., *The Llama 3 Herd of Models*,
2024, table 4 (8,192 tokens); DeepSeek-AI, *DeepSeek-V3 Technical Report*, 2024, section 3.2.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import stagepack as sp

EXAMPLES = Path(__file__).parents[1] / "examples"
GPT = {
    # billions: (heads, width, layers, tensor, pipeline, devices, samples)
    1.7: (24, 2304, 24, 1, 1, 32, 512),
    18.4: (48, 6144, 40, 8, 1, 256, 1024),
    76.1: (80, 10240, 60, 8, 4, 1024, 1792),
    145.6: (96, 12288, 80, 8, 8, 1536, 2304),
    529.6: (128, 20480, 105, 8, 35, 2520, 2520),
    1008.0: (160, 25600, 128, 8, 64, 3072, 3072),
}
LLAMA = {
    "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248,
    "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip


def runs() -> list[tuple[str, dict[str, Any], str, int, int, dict[str, int]]]:
    """Return names, configurations, devices, samples of a step, tokens of each, and degrees."""
    found: list[tuple[str, dict[str, Any], str, int, int, dict[str, int]]] = []
    for size, (heads, width, layers, tensor, pipeline, devices, samples) in GPT.items():
        config = {
            "model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": heads,
            "vocab_size": 51200, "n_positions": 2048,
        }  # fmt: skip
        degrees = {"tensor": tensor, "pipeline": pipeline}
        cluster = f"{devices // 8}x8xa100-80"
        found.append((f"GPT {size:g} B", config, cluster, samples, 2048, degrees))
    found.append(("Llama 3 405 B", LLAMA, "1024x8xh100", 2048, 8192, {"tensor": 8, "pipeline": 16}))
    deepseek = json.loads((EXAMPLES / "deepseek.json").read_text())
    degrees = {"tensor": 1, "pipeline": 16, "expert": 64}
    found.append(("DeepSeek-V3", deepseek, "256x8xh800", 15360, 4096, degrees))
    return found


def main() -> None:
    """Print the table."""
    row = "{:<14} {:>5} {:<28} {:>9} {:<28} {:>9} {:>9} {:>6} {:>6}"
    print(row.format("model", "", "published t/p/d/e", "step", "best", "step", "bound", "s", "s"))
    with tempfile.TemporaryDirectory() as folder:
        for name, config, cluster, samples, tokens, degrees in runs():
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(config))
            asked = {"global_batch": samples, "training": True, "sequence": tokens}
            took, found = [], []
            for given in (degrees, {}):
                began = time.process_time()
                found.append(sp.plan_layout(file, cluster, time_limit=60, **asked, **given))
                took.append(f"{time.process_time() - began:.1f}")
            cells: list[str] = []
            for one in found:
                at = one.layout
                said = (
                    "none fits"
                    if at is None
                    else (
                        f"{at.tensor}/{at.pipeline}/{at.data}/{at.expert} x {at.microbatch}"
                        f"{' again' if at.recompute else ''}"
                    )
                )
                cells += [said, "-" if one.seconds is None else f"{one.seconds:.3f}"]
            least = found[1].bound or 0
            nodes, each, _ = cluster.split("x", 2)
            many = f"{int(nodes) * int(each):,}"
            print(row.format(name, many, *cells, f"{least / 1e9:.3f}", *took), flush=True)


if __name__ == "__main__":
    main()
