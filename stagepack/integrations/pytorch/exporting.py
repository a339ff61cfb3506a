"""Exports a module as a graph of operators by torch.export; errors name what cannot be traced."""

from __future__ import annotations

import inspect
import io
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from textwrap import shorten
from typing import Any, NamedTuple, NoReturn

import torch
from torch import fx, nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from stagepack.errors import InputError
from stagepack.integrations.pytorch.inside import has_backward_hooks

FAILURES = (
    RuntimeError, TypeError, ValueError, AttributeError, LookupError, NotImplementedError,
    AssertionError,
)  # fmt: skip
"""What the code of a module may end with; torch's own are RuntimeErrors."""
END = re.compile(
    r" \(unhinted| Caused by:| If this type holds| Export only supports| For more information|"
    r" Explanation:| This error happens|"
    r"If you're using torch\.compile"
)
"""Where torch goes on with what helps nobody here."""
BRANCHES = ("data-dependent", "dynamic control flow", ".item()")
"""What torch says of control flow that depends on values."""
RUNS = (
    "give inputs on which module(*sample_inputs, **kwargs) runs by itself; if it does, wrap it in "
    "a module that takes as inputs what is not computed by operators of PyTorch's"
)
CURES = {
    BRANCHES: "take control flow that depends on data out of it, as by torch.where or torch.cond",
    ("numpy()",): "compute by PyTorch's operators there, not by numpy's",
    ("same device", "meta tensor", "device"): "put the module and its inputs on one device",
    ("in output, which is not",): "wrap it in a module that returns tensors, or tuples, lists or "
    "dictionaries of them, or call torch.export.register_dataclass(...) on that class",
    ("Unsupported input type",): "give tensors, or tuples, lists or dictionaries of them, or call "
    "torch.export.register_dataclass(...) on that class",
    ("positional argument", "keyword argument", "required argument", "multiple values"):
    "give the inputs of its forward{takes}",
}  # fmt: skip
"""What to do about what torch says; any other failure is most often one of the inputs."""
INNER = ("torch._", "torch.nn.modules._functions")
"""Modules of torch's own functions that are traced as they are, or told of otherwise."""
log = logging.getLogger("stagepack")


class Exported(NamedTuple):
    """A module as one graph, and what :class:`.tracing.Traced` says of it besides."""

    graph: fx.GraphModule
    built: tuple[Any, Any]
    slopes: tuple[str, ...]
    moving: tuple[str, ...]


def exported(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Exported:
    """Return the graph of a module for `inputs` and `kwargs`; errors name the module that ran.

    A model of Transformers that cannot be traced with its cache of keys and values is traced
    without it, and that is told.
    """
    _require_traceable(module)
    try:
        return _exported(module, inputs, kwargs)
    except FAILURES as error:
        caching = [] if "use_cache" in kwargs else _caching(module)
        if not caching:
            _refuse(error, module, inputs, kwargs)
    _keep_caches(caching, False)
    try:
        found = _exported(module, inputs, kwargs)
    except FAILURES as error:
        _refuse(error, module, inputs, kwargs)
    finally:
        _keep_caches(caching, True)
    log.warning("%s is taken with use_cache=False: it returns no cache", type(module).__name__)
    return found


def _caching(module: nn.Module) -> list[Any]:
    """Return the configurations by which parts of a model of Transformers return a cache."""
    found = {id(part.config): part.config for part in module.modules() if hasattr(part, "config")}
    return [config for config in found.values() if getattr(config, "use_cache", None) is True]


def _keep_caches(configs: list[Any], kept: bool) -> None:
    """Say in configurations whether caches are `kept`."""
    for config in configs:
        config.use_cache = kept


def _exported(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Exported:
    """Return the graph of a module as it stands; `inputs` and `kwargs` are of one call."""
    before: dict[str, Any] = {}
    changed: list[str] = []
    begun = module.register_forward_pre_hook(partial(_begun, before))
    ended = module.register_forward_hook(partial(_ended, before, changed))
    try:
        with _held_back(), _functions() as functions:
            program = torch.export.export(module, inputs, kwargs, strict=False)
            graph = program.module()
    finally:
        begun.remove()
        ended.remove()
    hooked = (f"{name or type(part).__name__!s}: a backward hook"
              for name, part in module.named_modules() if has_backward_hooks(part))  # fmt: skip
    built = (program.call_spec.in_spec, program.call_spec.out_spec)
    return Exported(graph, built, (*hooked, *dict.fromkeys(functions)), tuple(changed))


def _refuse(
    error: Exception, module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> NoReturn:
    """Say why a module cannot be traced for `inputs` and `kwargs`: the `error`, and where."""
    place = _place(module, inputs, kwargs) or type(module).__name__
    said = " ".join(str(error).split())
    reason = shorten(END.split(said)[0].rstrip(" ."), 300, placeholder="...")
    reason = reason or type(error).__name__
    raise InputError(
        f"cannot be traced: {reason}", field=f"module {place}", remedy=_remedy(error, module)
    ) from None


def _require_traceable(module: nn.Module) -> None:
    """Refuse what torch.export does not take, and does not say so plainly."""
    if not isinstance(module, nn.Module):
        raise InputError(
            f"is a {type(module).__name__}", field="module", remedy="give a torch.nn.Module"
        )
    for name, part in module.named_modules():
        place = f"module {name}" if name else "module"
        if isinstance(part, torch.jit.ScriptModule):
            raise InputError(
                "is scripted, so that it cannot be traced", field=place,
                remedy="give the module that it was made of",
            )  # fmt: skip
        if any(isinstance(value, torch.ScriptObject) for value in vars(part).values()):
            raise InputError(
                "holds packed weights of a quantised layer, which cannot be traced", field=place,
                remedy="give the module before it was quantised",
            )  # fmt: skip
        for key, value in (*part._parameters.items(), *part._buffers.items()):
            if nn.parameter.is_lazy(value):
                raise InputError(
                    f"has no shape yet of its {key!r}", field=place,
                    remedy="run the module once on the sample",
                )  # fmt: skip


def _numbers(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of modules that are numbers."""
    return {
        f"{name}.{key}" if name else key: value
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if type(value) in (int, float)
    }


def _begun(before: dict[str, Any], module: nn.Module, _: Any) -> None:
    before.update(_numbers(module))


def _ended(before: dict[str, Any], changed: list[str], module: nn.Module, *_: Any) -> None:
    changed += [key for key, value in _numbers(module).items() if before.get(key, value) != value]


def _place(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the name of the module that runs when tracing fails; "" for the whole.

    Only looked for once it has failed: torch cannot trace branches of modules with hooks.  What the
    module writes it has written before.
    """
    running: list[str] = []

    def enter(name: str, *_: Any) -> None:
        running.append(name)

    def leave(*_: Any) -> None:
        running.pop()

    hooks = [part.register_forward_pre_hook(partial(enter, name))
             for name, part in module.named_modules()]  # fmt: skip
    hooks += [part.register_forward_hook(leave) for part in module.modules()]
    try:
        with _held_back(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            torch.export.export(module, inputs, kwargs, strict=False)
    except FAILURES:
        return running[-1] if running else ""
    finally:
        for hook in hooks:
            hook.remove()
    return ""


def _remedy(error: Exception, module: nn.Module) -> str:
    """Return what to do about a failure of torch.export."""
    said = str(error)
    if isinstance(error, GuardOnDataDependentSymNode):
        return CURES[BRANCHES]
    cure = next(
        (cure for parts, cure in CURES.items() if any(part in said for part in parts)), RUNS
    )
    return cure.format(takes=inspect.signature(module.forward))


@contextmanager
def _functions() -> Iterator[list[str]]:
    """Yield a list that is filled with functions that have a backward pass of their own.

    Torch traces what they do forward, and differentiates that.  Those of its inner parts are its
    own operators; others, such as of checkpoints, it traces without gradients.
    """
    owner, found = torch.autograd.Function, list[str]()
    known = vars(owner)["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith(INNER):
            found.append(f"{cls.__qualname__}: backward()")
        return known.__get__(None, cls)(*args, **kwargs)

    owner.apply = classmethod(apply)
    try:
        yield found
    finally:
        owner.apply = known


@contextmanager
def _held_back() -> Iterator[None]:
    """Show what torch logs when all went well; before a refusal it says the same once more.

    The same goes for the graph that torch prints.  Where ``TORCH_LOGS`` asks for logs all is shown.
    """
    if "TORCH_LOGS" in os.environ:
        yield
        return
    kept: list[tuple[logging.Handler, logging.LogRecord]] = []

    def keeper(handler: logging.Handler) -> Callable[[logging.LogRecord], bool]:
        def keep(record: logging.LogRecord) -> bool:
            kept.append((handler, record))
            return False

        return keep

    filters = [(handler, keeper(handler)) for handler in _handlers()]
    for handler, keep in filters:
        handler.addFilter(keep)
    printed, graph = io.StringIO(), ""
    try:
        with redirect_stderr(printed):
            yield
    except FAILURES as error:
        kept.clear()
        if hasattr(error, "partial_fx_graph"):
            graph = f"{error.partial_fx_graph}\n"
        raise
    finally:
        for handler, keep in filters:
            handler.removeFilter(keep)
        for handler, record in kept:
            handler.handle(record)
        sys.stderr.write(printed.getvalue().replace(graph, ""))


def _handlers() -> set[logging.Handler]:
    loggers = [logging.getLogger("torch")]
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch.") and isinstance(logger, logging.Logger):
            loggers.append(logger)
    return {handler for logger in loggers for handler in logger.handlers}
