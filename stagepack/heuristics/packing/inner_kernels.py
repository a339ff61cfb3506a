"""Kernels that only other kernels call are compiled by :mod:`stagepack.instances.compiled`."""

from stagepack.instances.compiled import inner

__all__ = ["inner"]
