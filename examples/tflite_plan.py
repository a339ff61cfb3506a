"""Microcontrollers: a .tflite model to one with a proved plan: python examples/tflite_plan.py FILE."""

import sys

import stagepack as sp

buffers = sp.read(sys.argv[1], kind="packing")
result = sp.solve(buffers)
sp.write_solution(buffers, result, "planned.tflite", format="tflm", model=sys.argv[1])
assert buffers.check(sp.read_solution("planned.tflite", buffers)) == ()
print(f"{result.status}: {result.objective} bytes of tensors in planned.tflite")
