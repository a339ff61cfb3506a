"""Train: a profile to Megatron-LM's layout and a schedule for PyTorch."""

import stagepack as sp

costs = [4, *[10] * 24, 16]  # embedding, transformer layers, head: forward, as measured
names = ["embedding", *(f"layer {at}" for at in range(24)), "head"]
chain = sp.PipelinePartition.from_arrays(costs, backward=[2 * cost for cost in costs],
                                         devices=4, training=True, layer_names=names)
cut = sp.solve(chain)
sp.write_solution(chain, cut, "layout.txt", format="megatron")
stages = sp.PipelineSchedule.from_partition(chain, cut, microbatches=8, whole_first=True)
sp.write_solution(stages, sp.solve(stages, time_limit=5), "order.csv")
print(open("layout.txt").read(), open("order.csv").read(), sep="")
