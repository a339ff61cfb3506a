"""A leaner way through numba's compiler, for kernels that are made of many small functions.

A function that is only a part of others is not brought to machine code by itself, which nobody
would run: its code is optimised once, within the kernels that call it.  Passes for what kernels do
not have are left out, and the type of an operation on the same kinds of numbers is found once
where numba asks a dozen templates again at every one.  Together that is a third of the time.
It knows numba from within: versions later than those it was tried with compile in their own way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.types.functions import BaseFunction

TRIED = (0, 68)
"""The latest minor version of numba that this was tried with; the first was 0.61."""
LEFT_OUT = (
    "with_lifting",
    "inline_closure_likes",
    "make_function_op_code_to_jit_function",
    "inline_overloads",
    "find_literally",
    "literal_unroll",
)
"""Passes for closures, ``with`` and unrolled loops over tuples, as they are called by numba."""
MODULES = ("_operator", "builtins", "math")
"""Where functions are from whose results depend on the kinds of plain arguments alone."""
OF_ARRAYS = ("getitem", "setitem", "len")
"""Those of them that are asked for arrays, too."""


def options(way: type[CompilerBase]) -> dict[str, Any]:
    """Return the options of ``numba.njit`` for a way: none where this numba was not tried."""
    return {"pipeline_class": way} if _tried(numba.__version__) else {}


def _tried(version: str) -> bool:
    """Whether a version of numba is not later than those tried."""
    try:
        return tuple(map(int, version.split(".")[:2])) <= TRIED
    except ValueError:
        return False


class Whole(CompilerBase):
    """Compiles a kernel."""

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes without those for what kernels do not have."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [one for one in passes.passes if one[0].name() not in LEFT_OUT]
        return [passes]


class Part(Whole):
    """Compiles a function into the kernels that call it."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes, whose end is code to be linked into that of others."""
        if self.state.library is None:
            library: Any = _PartLibrary
            codegen = self.state.targetctx.codegen()
            self.state.library = library(codegen, self.state.func_id.func_qualname)
        return super().define_pipelines()


class _PartLibrary(JITCodeLibrary):
    """Code of a part: not optimised, nor known to the engine that makes machine code."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "external":
                function.linkage = "linkonce_odr"
        return self._final_module

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: nothing of it can be called from outside."""
        return 0

    @property
    def codegen(self) -> Any:
        """What is told of environments: this, as code that the engine does not know has none."""
        return self

    def set_env(self, name: str, environment: object) -> None:
        """Leave them out."""


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Remember in the block, under numba's lock, what types operations have."""
    if not _tried(numba.__version__):
        yield
        return
    function: Any = BaseFunction
    asked = function.get_call_type
    function.get_call_type = _remembering(asked)
    try:
        yield
    finally:
        function.get_call_type = asked


_known: dict[tuple[int, Any], tuple[Any, Any]] = {}


def _remembering(asked: Callable[..., Any]) -> Callable[..., Any]:
    """Return numba's search for a function's signature, asked once for each kinds of arguments."""

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        key = function.typing_key
        if kws or getattr(key, "__module__", None) not in MODULES:
            return asked(function, context, args, kws)
        plain = types.Number | types.Boolean
        if key.__name__ in OF_ARRAYS:
            plain |= types.Array
        if not all(isinstance(one, plain) for one in args):
            return asked(function, context, args, kws)
        known = _known.get((id(function), args))
        if known is None:  # the function is kept, so that no other one has its number
            known = _known[id(function), args] = asked(function, context, args, kws), function
        return known[0]

    return get_call_type
