"""A faster path through numba's compiler, for kernels that consist of many small functions.

Functions that are only called by other kernels are not compiled to machine code separately; they
are optimised once, within the kernels that call them.  Compiler passes for features that kernels do
not use are skipped, and so are passes that only reduce the work of later ones.  The result type of
an operation is looked up once for each combination of argument types, where numba tries a dozen
templates each time.  Together this saves more than a third of the compilation time.
It depends on internals of numba: versions newer than those tested compile in numba's own way.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numba
from numba.core import cgutils, datamodel, ir, transforms, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.datamodel import packer
from numba.core.lowering import Lower
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.typed_passes import NativeLowering, NopythonRewrites
from numba.core.types.functions import BaseFunction
from numba.core.typing import templates
from numba.np import arrayobj

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
MADE = ("unary", "binop", "inplace_binop", "call")
"""Expressions by which arrays are made of others."""
MODULES = ("_operator", "builtins", "math")
"""Where functions are from whose results depend on the kinds of plain arguments alone."""
BORROWED = (
    "build_tuple",
    "cast",
    "exhaust_iter",
    "getattr",
    "getiter",
    "iternext",
    "pair_first",
    "pair_second",
    "phi",
    "static_getitem",
    "typed_getitem",
)
"""Expressions that give arrays, or parts of arrays, which another variable holds already."""
OF_ARRAYS = ("getitem", "setitem", "len")
"""Those of them that are asked for arrays, too."""
INLINED, A_VALUE = 250, 5
"""What LLVM puts into callers costs at most so much, and so much more for each value given."""
PLAIN = types.Number | types.Boolean
"""Kinds of plain arguments."""


def options(way: type[CompilerBase]) -> dict[str, Any]:
    """Return the options of ``numba.njit`` for a way: none where this numba was not tried."""
    return {"pipeline_class": way} if _tried(numba.__version__) else {}


def _tried(version: str) -> bool:
    """Whether a version of numba is not later than those tried."""
    try:
        return tuple(map(int, version.split(".")[:2])) <= TRIED
    except ValueError:
        return False


@register_pass(mutates_CFG=True, analysis_only=False)
class Rewrites(NopythonRewrites):
    """Joins operations on whole arrays into one loop, where there are any."""

    _name = "rewrites_of_arrays"

    def run_pass(self, state: Any) -> bool:
        """Look at what is assigned first: the pass itself finds out how long every variable lives.

        Returns
        -------
        bool
            Whether there are any.
        """
        for block in state.func_ir.blocks.values():
            for one in block.find_insts(ir.Assign):
                made = isinstance(one.value, ir.Expr) and one.value.op in MADE
                if made and isinstance(state.typemap.get(one.target.name), types.Array):
                    joining: Any = super()
                    return bool(joining.run_pass(state))
        return False


class Lowering(Lower):
    """Writes a function's code without counting who holds an array where it makes none.

    Those that it is given are held by its caller until it returns.  Single entries of arrays are
    read and written where they are.
    """

    def __init__(self, context: Any, library: Any, fndesc: Any, *rest: Any, **other: Any) -> None:
        fndesc.argtypes = Given(fndesc.argtypes)
        function: Any = super()
        function.__init__(context, library, fndesc, *rest, **other)

    def lower_normal_function(self, fndesc: Any) -> None:
        """Write the function itself; its way in from the interpreter counts as ever."""
        counting: Any = self.context
        if counting.enable_nrt and not self._makes_arrays():
            self.context = counting.subtarget(enable_nrt=False)
        try:
            function: Any = super()
            function.lower_normal_function(fndesc)
        finally:
            self.context = counting

    def _makes_arrays(self) -> bool:
        """Whether it makes or returns arrays, or calls what may."""
        return self._holds(self.fndesc.restype) or any(
            self._makes_some(one) for block in self.blocks.values() for one in block.body
        )

    def _makes_some(self, one: Any) -> bool:
        """Whether a statement makes arrays, or needs memory of its own."""
        if isinstance(one, ir.Assign):
            return self._holds(self._kind(one.target)) and not self._borrows(one.value)
        if isinstance(one, ir.SetItem | ir.StaticSetItem):  # what overlaps is copied first
            return self._holds(self._kind(one.value))
        return isinstance(one, ir.DynamicRaise | ir.DynamicTryRaise)

    def _kind(self, variable: Any) -> Any:
        return self.fndesc.typemap[variable.name]

    def _load(self, variable: Any) -> Any:
        function: Any = self
        return function.loadvar(variable.name)

    def _holds(self, kind: Any) -> bool:
        """Whether values of a kind are arrays, or have some within."""
        model: Any = self.context.data_model_manager[kind]
        return bool(model.contains_nrt_meminfo())

    def _borrows(self, value: Any) -> bool:
        """Whether a value's arrays are held by another variable, or by the module."""
        if not isinstance(value, ir.Expr):
            return isinstance(value, ir.Arg | ir.Var | ir.Global | ir.FreeVar)
        if value.op == "getitem":  # entries chosen by an array are copied
            return not self._holds(self._kind(value.index))
        if value.op == "getattr" and value.attr == "imag":  # zeros, of what is real
            return False
        named = value.op == "call" and isinstance(self._kind(value.func), types.NamedTupleClass)
        return named or value.op in BORROWED

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Read an entry of an array where it is, without taking the array apart in memory."""
        array = self._kind(value)
        if not self._is_entry(array, signature.args[1]):
            function: Any = super()
            return function.lower_getitem(resty, expr, value, index, signature)
        pointer = self._entry(value, index, signature.args[1])
        entry = arrayobj.load_item(self.context, self.builder, array, pointer)
        return self.context.cast(self.builder, entry, array.dtype, resty)

    def lower_setitem(self, target: Any, index: Any, value: Any, signature: Any) -> Any:
        """Write an entry of an array likewise."""
        array, given = self._kind(target), self._kind(value)
        if not (self._is_entry(array, signature.args[1]) and isinstance(given, PLAIN)):
            function: Any = super()
            return function.lower_setitem(target, index, value, signature)
        pointer = self._entry(target, index, signature.args[1])
        entry = self.context.cast(self.builder, self._load(value), given, array.dtype)
        arrayobj.store_item(self.context, self.builder, array, entry, pointer)
        return None

    def _is_entry(self, array: Any, index: Any) -> bool:
        """Whether an index of an array names a single entry of it, and bounds are not checked."""
        if not isinstance(array, types.Array) or array.ndim == 0 or self.context.enable_boundscheck:
            return False
        kinds: Any = index.types if isinstance(index, types.Tuple | types.UniTuple) else (index,)
        return len(kinds) == array.ndim and all(isinstance(one, types.Integer) for one in kinds)

    def _entry(self, array: Any, index: Any, kind: Any) -> Any:
        """Return where an entry of an array is; indices below zero count from its end."""
        builder, whole, chosen = self.builder, self._load(array), self._load(index)
        model = self.context.data_model_manager[self._kind(array)]

        def field(name: str) -> Any:
            return builder.extract_value(whole, model.get_field_position(name))

        shape = cgutils.unpack_tuple(builder, field("shape"))
        if isinstance(kind, types.Integer):
            given = [(chosen, self._kind(index), kind)]
        else:
            parts = cgutils.unpack_tuple(builder, chosen)
            given = list(zip(parts, self._kind(index).types, kind.types, strict=True))
        places = [
            arrayobj.fix_integer_index(
                self.context, builder, wanted, self.context.cast(builder, part, own, wanted), size
            )
            for (part, own, wanted), size in zip(given, shape, strict=True)
        ]
        if self._kind(array).layout != "C":
            strides = cgutils.unpack_tuple(builder, field("strides"))
            ways = [builder.mul(*one) for one in zip(strides, places, strict=True)]
            return cgutils.pointer_add(builder, field("data"), functools.reduce(builder.add, ways))
        place = places[0]
        for size, one in zip(shape[1:], places[1:], strict=True):
            place = builder.add(builder.mul(place, size), one)
        return builder.gep(field("data"), [place])

    def delvar(self, name: str) -> None:
        """Let go of what is counted; of anything else nothing is left to do."""
        if self.context.enable_nrt and self._holds(self.fndesc.typemap[name]):
            function: Any = super()
            function.delvar(name)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: object = None) -> Any:
        """Make room for a variable; numba would ask LLVM how large it is, for debuggers alone."""
        del datamodel
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)


@register_pass(mutates_CFG=True, analysis_only=False)
class LoweringUncounted(NativeLowering):
    """Writes functions by :class:`Lowering`."""

    _name = "lowering_uncounted"

    @property
    def lowering_class(self) -> type[Lower]:
        """What writes them."""
        return Lowering


class Whole(CompilerBase):
    """Compiles a kernel."""

    library: Any = None

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes without those for what kernels do not have."""
        if self.state.library is None:
            name = self.state.func_id.func_qualname
            self.state.library = self.library(self.state.targetctx.codegen(), name)
            self.state.library.enable_object_caching()
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        kept = [one for one in passes.passes if one[0].name() not in LEFT_OUT]
        own: dict[Any, Any] = {NopythonRewrites: Rewrites, NativeLowering: LoweringUncounted}
        passes.passes = [(own.get(one, one), what) for one, what in kept]
        return [passes]


class _WholeLibrary(JITCodeLibrary):
    """Code of a kernel, optimised as a whole, not before function by function."""

    def finalize(self) -> None:
        """Link the parts, and parts of parts, each once; then all others."""
        others = []
        for one in _with_parts(self._linking_libraries):
            if isinstance(one, _PartLibrary):
                one.link_into(self)
            else:
                others.append(one)
        self._linking_libraries = others
        code: Any = super()
        code.finalize()

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout


class Part(Whole):
    """Compiles a function into the kernels that call it."""


class _PartLibrary(JITCodeLibrary):
    """Code of a part: not optimised, nor known to the engine that makes machine code."""

    parts: tuple[Any, ...] = ()

    def finalize(self) -> None:
        """Leave it to the kernel to link its parts."""
        self.parts, self._linking_libraries = tuple(dict.fromkeys(self._linking_libraries)), []
        self._finalized = True

    def link_into(self, other: Any) -> None:
        """Link its own code, without its parts."""
        if hasattr(other, "_reload_init"):  # numba 0.61 has none
            other._reload_init.update(self._reload_init)
        other._final_module.link_in(self._own(), preserve=True)

    def _own(self) -> Any:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name == "external":
                function.linkage = "linkonce_odr"
        return self._final_module

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _get_module_for_linking(self) -> Any:
        """Return its code with that of its parts, for kernels that do not ask for these."""
        within, self.parts = _with_parts(self.parts), ()
        for one in within:
            if isinstance(one, _PartLibrary):
                one.link_into(self)
            else:
                self._final_module.link_in(one._get_module_for_linking(), preserve=True)
        return self._own()

    def add_ir_module(self, module: Any) -> None:
        """Take code; put it into its callers as if all parts of arguments were given one by one."""
        for function in module.functions:
            values = sum(map(_bundled, function.function_type.args))
            if values and not function.is_declaration:
                most = INLINED + A_VALUE * values
                set.add(function.attributes, f'"function-inline-threshold"="{most}"')
        code: Any = super()
        code.add_ir_module(module)

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: nothing of it can be called from outside."""
        return 0

    @property
    def codegen(self) -> Any:
        """What is told of environments: this, as code that the engine does not know has none."""
        return self

    def set_env(self, name: str, environment: object) -> None:
        """Leave them out."""


def _with_parts(libraries: Iterable[Any]) -> list[Any]:
    """Return libraries with all that parts among them call, each once."""
    met = list(dict.fromkeys(libraries))
    known = set(met)
    for one in met:
        more = [part for part in getattr(one, "parts", ()) if part not in known]
        known.update(more)
        met.extend(more)
    return met


Whole.library, Part.library = _WholeLibrary, _PartLibrary


class Given(tuple[Any, ...]):
    """Kinds of a function's arguments, whose arrays and named tuples are given as they are.

    Numba gives every pointer and length in them by itself, and puts them together again in the
    function, for LLVM to find out that nothing happens.  Kept with kernels in the cache.
    """


class _Packer(packer.ArgPacker):
    """How a function is given its arguments: others than ours in numba's way."""

    def __init__(self, models: Any, kinds: Iterable[Any]) -> None:
        packs: Any = super()
        packs.__init__(_Models(models) if isinstance(kinds, Given) else models, kinds)


class _Models:
    """How arguments of all kinds are given."""

    def __init__(self, models: Any) -> None:
        self._models = models

    def lookup(self, kind: Any) -> Any:
        """Return how arguments of a kind are given."""
        model = self._models.lookup(kind)
        return _AsIs(model) if isinstance(kind, types.Array | types.BaseNamedTuple) else model


class _AsIs:
    """How an array, or a named tuple, is given."""

    def __init__(self, model: Any) -> None:
        self.get_argument_type = model.get_value_type

    def as_argument(self, builder: object, value: object) -> object:
        """Return the value."""
        del builder
        return value

    from_argument = as_argument


if _tried(numba.__version__):
    numbas: Any = datamodel
    numbas.ArgPacker = _Packer


def _bundled(kind: Any) -> int:
    """Return how many values there are in an argument that is given as it is; 0 in others."""
    return sum(_bundled(one) or getattr(one, "count", 1) for one in getattr(kind, "elements", ()))


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Remember in the block, under numba's lock, what types operations have.

    Nor is it found out after every pass which variables live where, which generators need to know.
    """
    if not _tried(numba.__version__):
        yield
        return
    function: Any = BaseFunction
    processor: Any = PostProcessor
    template: Any = templates._OverloadFunctionTemplate
    asked, run, jitter = function.get_call_type, processor.run, template._get_jit_decorator
    function.get_call_type, processor.run = _remembering(asked), _processing(run)
    template._get_jit_decorator = _in_parts(jitter)
    try:
        yield
    finally:
        function.get_call_type, processor.run = asked, run
        template._get_jit_decorator = jitter


def _in_parts(jitter: Callable[..., Any]) -> Callable[..., Any]:
    """Return how numba's own functions are compiled: as parts, too."""

    def lean(self: Any) -> Callable[..., Any]:
        return functools.partial(jitter(self), no_cfunc_wrapper=True, pipeline_class=Part)

    return lean


def _processing(run: Callable[..., None]) -> Callable[..., None]:
    """Return numba's work between passes without what generators alone need."""

    def lean(self: Any, emit_dels: bool = False, **other: Any) -> None:
        if self.func_ir.is_generator:
            run(self, emit_dels, **other)
            return
        self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = VariableLifetime(self.func_ir.blocks)
        self.func_ir.generator_info = None
        if emit_dels:
            self._insert_var_dels(**other)

    return lean


_known: dict[tuple[int, Any], tuple[Any, Any]] = {}


def _remembering(asked: Callable[..., Any]) -> Callable[..., Any]:
    """Return numba's search for a function's signature, asked once for each kinds of arguments."""

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        key = function.typing_key
        if kws or getattr(key, "__module__", None) not in MODULES:
            return asked(function, context, args, kws)
        arrays = key.__name__ in OF_ARRAYS
        if not all(isinstance(one, PLAIN) or (arrays and _plain(one)) for one in args):
            return asked(function, context, args, kws)
        known = _known.get((id(function), args))
        if known is None:  # the function is kept, so that no other one has its number
            known = _known[id(function), args] = asked(function, context, args, kws), function
        return known[0]

    return get_call_type


def _plain(kind: Any) -> bool:
    """Whether a kind is one of arrays, or of what they are indexed with."""
    if isinstance(kind, types.Tuple | types.UniTuple):
        return all(isinstance(one, PLAIN) for one in kind.types)
    return isinstance(kind, types.Array)
