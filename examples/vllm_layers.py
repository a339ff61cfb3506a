"""Serve: costs of layers to the partition of vLLM."""

import stagepack as sp

costs = [10] * 40 + [13] * 38  # transformer layers, as measured; the last ones are dearer
costs[-1] += 30  # the last rank has the head, too
chain = sp.PipelinePartition.from_arrays(costs, devices=2)
result = sp.solve(chain)
sp.write_solution(chain, result, "vllm.env", format="vllm", letters="t*78")
print(open("vllm.env").read(), result.status, sep="")
