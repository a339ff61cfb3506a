"""An ONNX file to a partition: python examples/onnx_partition.py model.onnx."""

import sys

import stagepack as sp

graph = sp.read(sys.argv[1], kind="graph", cluster="ipu-pod4", batch=16)
result = sp.solve(graph, time_limit=5)
print(result.status, result.objective, result.solution.to_dict())
