"""A problem from elsewhere: which things to leave out of a bag, as a newcomer would add it.

Its folders are all there is of it, and the line that a newcomer adds to ``stagepack.kinds.KINDS``:

    "toy-knapsack": Kind("toy", home="tests.toy_kind")
"""
