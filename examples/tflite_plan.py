"""Microcontrollers: a .tflite model to one with a proved plan."""

import argparse

import stagepack as sp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="a .tflite file")
model = parser.parse_args().model
buffers = sp.read(model, kind="packing")
result = sp.solve(buffers)
sp.write_solution(buffers, result, "planned.tflite", format="tflm", model=model)
assert buffers.check(sp.read_solution("planned.tflite", buffers)) == ()
print(f"{result.status}: {result.objective} bytes of tensors in planned.tflite")
