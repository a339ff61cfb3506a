"""In a process that is started with ``--child``, the clock counts the CPU seconds of the process.

Import this before any module of Stagepack, which read the clock.
"""

from __future__ import annotations

import sys
import time

CPU = time.process_time
CHILD = "--child" in sys.argv
if CHILD:
    time.perf_counter = CPU
