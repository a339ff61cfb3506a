"""Compilers: a dump of XLA, Vela or a profiler to offsets: python examples/compiler_dump.py DUMP."""

import sys

import stagepack as sp

for buffers in sp.read_all(sys.argv[1], kind="packing"):
    result = sp.solve(buffers, time_limit=5)
    print(f"{buffers.name}: {result.status} {result.objective}, at least {result.bound} bytes")
    sp.write_solution(buffers, result, "offsets.h", format="c")
    sp.plot(buffers, result, "map.html")
