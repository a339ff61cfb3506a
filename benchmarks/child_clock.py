"""A process started with ``--child`` has no clock but its own CPU seconds.

To be imported before anything of Stagepack reads a clock.
"""

from __future__ import annotations

import sys
import time

CPU = time.process_time
CHILD = "--child" in sys.argv
if CHILD:
    time.perf_counter = CPU
