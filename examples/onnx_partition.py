"""An ONNX file to a partition."""

import argparse

import stagepack as sp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="an ONNX file")
model = parser.parse_args().model
graph = sp.read(model, kind="graph", cluster="ipu-pod4", batch=16)
result = sp.solve(graph, time_limit=5)
print(result.status, result.objective, result.solution.to_dict())
