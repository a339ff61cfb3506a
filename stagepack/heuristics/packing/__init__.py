"""LMEM packing without a solver.

``constructive`` places one block after another, ``local_search`` lowers a packing that is there,
and ``exact_search`` finds the lowest or proves that nothing fits; on it rest bounds from windows of
time and irreducible infeasible subsets.  ``relocation`` moves few bytes of an old placement.
"""
