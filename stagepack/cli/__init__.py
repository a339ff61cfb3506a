"""The command line, which offers the functions of the library as commands.

Exit codes: 0 solved (also where time ended a run with an incumbent in hand), 1 nothing found in
time, 2 bad input or usage, 3 proved infeasible, 4 violations (``check``), 5 valid but not verified
(``check``), 6 interrupted with an incumbent in hand, 70 internal error, 130 interrupted with
nothing in hand.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from stagepack import memory
from stagepack.cli.context import takes_context
from stagepack.cli.examples import EXAMPLES
from stagepack.cli.options import EXIT_INPUT, EXIT_INTERNAL, EXIT_INTERRUPTED, Command, bare
from stagepack.cli.terminal.screen import Stderr, complain, legible_width, plain_letters, say
from stagepack.errors import InputError, shown

COMMANDS = {
    "solve": "solve.solve",
    "plan": "plan.plan",
    "serving": "serving.serving",
    "tune": "plan.tune",
    "measure": "measure.measure",
    "compare": "compare.compare",
    "results": "results.results",
    "report": "report.report",
    "pareto": "tradeoffs.pareto",
    "explain": "tradeoffs.explain",
    "check": "check.check",
    "show": "show.show",
    "plot": "show.plot",
    "list": "listing.catalog",
    "convert": "listing.convert",
    "import": "importing.import_model",
    "methods": "listing.methods",
    "schema": "listing.schema",
}
"""What each command does: module of this folder and function, loaded when it is called."""


def command(name: str) -> Callable[..., None]:
    """Return the function of a command."""
    module, _, function = COMMANDS[name].partition(".")
    found: Callable[..., None] = getattr(
        importlib.import_module(f"stagepack.cli.{module}"), function
    )
    return found


def epilog(name: str) -> str:
    """Return what stands below the options of a command: its examples."""
    lines = (f"  stagepack {line}" for line in EXAMPLES[name])
    return "\n\n".join(["[bold]Examples[/]", *lines])


def with_options(name: str, *, of_instances: bool = True) -> Any:
    """Return the command of a name, as typer runs it, perhaps without the options of instances."""
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    run = takes_context(command(name), options=of_instances)
    alone.command(name, cls=Command, epilog=epilog(name))(run)
    return typer.main.get_command(alone)


def command_for(name: str, words: Sequence[str]) -> Any:
    """Return the command of a name that knows all options among these words of a command line.

    Options of instances, which take as long to make as a small file to read, need the words of all
    problems: they are left out where every option is the command's own.
    """
    found = with_options(name, of_instances=False)
    own = {way for option in found.params for way in (*option.opts, *option.secondary_opts)}
    said = {word.partition("=")[0] for word in words if word.startswith("-")}
    return found if said <= own else with_options(name)


class Group(TyperGroup):
    """The root of the commands, of which one is loaded, and its options made, when it runs."""

    def get_params(self, ctx: Any) -> Any:
        """Return options, those for help and completion among them."""
        return bare(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what stands for a command in the help of the root."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            found.help = inspect.getdoc(command(cmd_name))
        return found

    def resolve_command(self, ctx: Any, args: Any) -> Any:
        """Return the command that the arguments begin with, and what is left of them."""
        name, _, rest = super().resolve_command(ctx, args)
        if not name:
            return name, None, rest
        # A shell that completes a word asks for options that nobody has said yet.
        found = with_options(name) if ctx.resilient_parsing else command_for(name, rest)
        return name, found, rest


app = typer.Typer(
    name="stagepack",
    cls=Group,
    help="Optimal pipeline stages, graph cuts, schedules, phases, layer groups and memory maps for "
    "neural networks on accelerators, with certificates.",
    epilog=epilog(""),
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class _Line(logging.Formatter):
    """Log lines without control characters; tracebacks stay as they are."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return shown(super().formatMessage(record))


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    quiet: Annotated[
        bool,
        typer.Option("-q", "--quiet", help="Say nothing on stderr.", show_default=False),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("-v", "--verbose", help="Log every step.", show_default=False),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", show_default=False),
    ] = False,
) -> None:
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO
    logging.basicConfig(level=logging.WARNING, handlers=[Stderr()])
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Line("%(message)s"))
    logging.getLogger("stagepack").setLevel(level)
    if version:
        from stagepack import __version__

        say(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())


def _listed() -> None:
    """Stand for a command in the help of the root."""


for name in COMMANDS:
    app.command(name)(_listed)


def main() -> NoReturn:
    """Run the command line; every failure becomes one line and an exit code."""
    # Typer has a Click of its own in some versions and the real one in others.
    usage_error: Any = typer.BadParameter.__base__
    left: Callable[[], None] | None = None
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        plain_letters()
        legible_width()
        if memory.is_scarce():
            from stagepack.cli.guard import guarded, load_frugally

            left = guarded(_ended)
            load_frugally()
        # -q and -v may stand anywhere, before or after the command.
        arguments = sys.argv[1:]
        loudness = [word for word in arguments if word in ("-q", "--quiet", "-v", "--verbose")]
        rest = [word for word in arguments if word not in loudness]
        if {"--show-completion", "--install-completion"} & set(rest[:-1]):
            # A shell is named: Typer takes it only where it is told not to look for its own, for
            # which it has no public word.  One that knows another word says that none is taken.
            os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
        code = app(args=[*loudness, *rest], prog_name="stagepack", standalone_mode=False)
    except InputError as error:
        code = _fail(f"error: {error}", EXIT_INPUT)
    except typer.Abort:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = EXIT_INTERRUPTED
    except usage_error as error:
        code = _fail(f"error: {error.format_message()}{_elsewhere(error)}", EXIT_INPUT)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the guard, or the user, may say it twice
        code = _ended(interrupted=True)
    except (BrokenPipeError, SystemExit):  # rich ends the program when a pipe is closed
        code = 0
    except OSError as error:
        if memory.ran_out(error):
            code = _no_memory()
        else:
            place, why = error.filename or "stdout", error.strerror or error
            code = _fail(f"error: {place}: cannot be used ({why})", EXIT_INPUT)
    except Exception as error:
        code = _no_memory() if memory.ran_out(error) else _internal(error)
    if left is not None:
        left()
    _leave(code if isinstance(code, int) else 0)


def _elsewhere(error: Any) -> str:
    """Return who takes an option that the command at hand does not, or ``--set``; "" for none."""
    wanted, own = getattr(error, "option_name", ""), error.ctx and error.ctx.command.name
    if not hasattr(error, "possibilities"):  # the option is known, and something else is wrong
        return ""
    word = wanted.removeprefix("--").replace("-", "_")
    if own and any("--set" in given.opts for given in error.ctx.command.params) and _is_word(word):
        return f"; say --set {word}=VALUE"
    takers = [
        name
        for name in COMMANDS
        if name != own and any(wanted in given.opts for given in with_options(name).params)
    ]
    named = " and ".join(filter(None, (", ".join(takers[:-1]), *takers[-1:])))
    return f"; stagepack {named} take{'s' * (len(takers) == 1)} it" if takers else ""


def _is_word(name: str) -> bool:
    """Whether something is said by this name of instances."""
    from stagepack.instances.problem import VOCABULARY

    return name in VOCABULARY


def _leave(code: int) -> NoReturn:
    """End with `code`, at once even when a cancelled solver still winds down in its thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said
    code = _flushed(code)
    engine = sys.modules.get("stagepack.solvers.engine")
    if engine is not None and engine.left_behind():
        os._exit(code)
    sys.exit(code)


def _flushed(code: int) -> int:
    """Return `code`, or that of an answer that did not get through; a closed pipe is no failure."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            code = _fail(f"error: stdout: cannot be used ({error.strerror})", code or EXIT_INPUT)
        with contextlib.suppress(OSError):  # what is left goes nowhere, without a word
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with contextlib.suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.flush()
    return code


def _fail(line: str, code: int) -> int:
    complain(line)
    return code


def _ended(interrupted: bool) -> int:
    return _fail("interrupted", EXIT_INTERRUPTED) if interrupted else _no_memory()


def _no_memory() -> int:
    return _fail(f"error: the run {memory.TOO_LITTLE}; use a larger machine", EXIT_INPUT)


def _internal(error: Exception) -> int:
    logging.getLogger("stagepack").debug("traceback", exc_info=True)
    if isinstance(error, ModuleNotFoundError) and (error.name or "stagepack")[:9] != "stagepack":
        return _fail(f"error: {error.name} is missing; install stagepack again", EXIT_INPUT)
    return _fail(f"internal error: {type(error).__name__}: {error}", EXIT_INTERNAL)
