"""Kernels: the loops that run as machine code, how they get there, and what is interpreted instead.

A *kernel* is a function of numbers, arrays, and named tuples of these, in a file ``*kernels.py``
(or ``sweep.py``; constants and tuples in ``*_state.py``, ``rules.py``).  It is plain Python of the
part that numba compiles, and returns the same either way: it can be read, tested and debugged
uncompiled (NUMBA_DISABLE_JIT=1).  It is given all arrays that it writes, holds no state of its own,
and does a bounded amount of work, after which it returns to be called again, so that its caller can
ask the clock.  The interpreter lock is released meanwhile.

=============== ==================================================================================
``@tiered``     A kernel that is interpreted while its calls are short and few, then compiled: it
                says how many steps a call may take at most.  The usual choice: to compile takes
                seconds, to load from the cache some hundredths, and most instances need neither.
``@compiled``   A kernel that is always compiled.  Where even the smallest call is long.
``@step``       A part of kernels that neither makes nor returns arrays.
``@inner``      A part of kernels that does.
``@inlined``    A step that is put into every function that calls it: where tuples of many arrays
                would be taken apart at every call of a loop.
=============== ==================================================================================

*Loading.*  Decorators only take note.  Numba itself is loaded, and told of all functions that are
known by then, when the first kernel is to be compiled (:mod:`.dispatchers`); a run whose kernels
are all interpreted does without.  Only numba's public means are used: ``njit``,
``numba.extending.overload``, its settings and its events.

*Cache.*  Machine code is kept in a folder for the state of all sources of kernels and the version
of numba: beside the package, or in the user's cache folder where that cannot be written, or in
NUMBA_CACHE_DIR; where none can be, every process compiles anew.  A new state removes the old
folder.  While one process compiles a kernel others wait for it.  What other packages compile is
kept where it would be without us.

*Clock.*  Compiling and loading is no time of solving: :func:`stagepack.progress.clock` stands still
meanwhile, and limits of runs go by it.  Dispatchers hear of it by numba's events; no method need
warm anything up, or see to it otherwise.  After two seconds people are told what takes so long.

*Bounds.*  NUMBA_BOUNDSCHECK=1 has machine code check indices, in a folder of its own; what is
interpreted is checked by NumPy.  ``python -m tests.checked`` runs tests so.
"""
