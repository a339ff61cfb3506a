"""The normal form of packings, on which all algorithms work: see :mod:`.blocks`."""
