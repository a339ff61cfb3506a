"""LMEM packing without a solver.

``constructive`` places one block after another, ``local_search`` lowers a given packing, and
``exact_search`` finds the lowest packing or proves that there is none.  Bounds from windows of time
and irreducible infeasible subsets are based on it.  ``relocation`` moves few bytes of an old
placement.
"""
