"""Compilers: a dump of XLA, Vela or a profiler to offsets."""

import argparse

import stagepack as sp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dump", help="a dump of XLA, Vela or a profiler")
dump = parser.parse_args().dump
for buffers in sp.read_all(dump, kind="packing"):
    result = sp.solve(buffers, time_limit=5)
    print(f"{buffers.name}: {result.status} {result.objective}, at least {result.bound} bytes")
    sp.write_solution(buffers, result, "offsets.h", format="c")
    sp.plot(buffers, result, "map.html")
