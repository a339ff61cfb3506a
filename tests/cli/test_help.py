"""Help: what every command says of itself, with examples that work."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from stagepack.cli import COMMANDS, app, command_for, with_options
from stagepack.cli.examples import EXAMPLES
from stagepack.cli.options import EVERYTHING, FEW


def test_every_command_has_two_examples() -> None:
    assert {"", *COMMANDS} == set(EXAMPLES)
    assert all(len(lines) >= 2 for lines in EXAMPLES.values())


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("way", ["--help", EVERYTHING])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_and_shows_examples_whole(command: str, way: str, width: int) -> None:
    words = [*command.split(), way if command else "--help"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": str(width)})
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= width
    assert "<bool>" not in done.output
    assert "[[" not in done.output
    assert "…" not in done.output  # an option's name is cut
    whole = [line.strip() for line in lines]
    assert all(f"stagepack {example}" in whole for example in EXAMPLES[command])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_the_first_options_and_help_all_the_rest(command: str) -> None:
    names = [one.opts[-1] for one in with_options(command).params if one.opts[0].startswith("-")]
    brief, full = (
        CliRunner().invoke(app, [command, way], env={"COLUMNS": "120"}).output
        for way in ("--help", EVERYTHING)
    )
    assert all(name.removeprefix("--") in full for name in names)
    assert (EVERYTHING in brief) is (len(names) > FEW)
    shown = sum(line.startswith(("│ --", "│ *  --")) for line in brief.splitlines())
    assert shown <= FEW + 2  # those for help


def test_flags_of_the_root_have_no_type() -> None:
    assert "bool" not in CliRunner().invoke(app, ["--help"]).output


@pytest.mark.parametrize("command", COMMANDS)
def test_options_with_a_value_say_what_it_is(command: str) -> None:
    for one in with_options(command).params:
        if one.param_type_name == "option" and not getattr(one, "is_flag", False):
            assert one.metavar, one.opts


@pytest.mark.parametrize(
    ("words", "made"),
    [("-t 5 --seed=1", False), ("--devices=8", True), ("--set batch=8", True), ("--help", True),
     ("-t5", True), ("--unknown", True)],
)  # fmt: skip
def test_options_of_instances_are_made_where_one_may_be_said(words: str, made: bool) -> None:
    found = command_for("solve", ["net.csv", *words.split()])
    assert any("--devices" in one.opts for one in found.params) is made


def test_options_are_grouped() -> None:
    done = CliRunner().invoke(app, ["solve", "--help-all"], env={"COLUMNS": "100"})
    titles = [line for line in done.output.splitlines() if line.startswith("╭─")]
    assert len(titles) >= 7
    own = done.output.split("─ Options ─")[1].split("╰")[0]
    assert "--help" in own
    assert "--method" not in own


def test_a_pair_of_flags_is_one_name_in_help_and_two_when_read() -> None:
    command = with_options("plan")
    words = ["bert-large", "--no-backward-transfers"]
    assert command.make_context("plan", [*words]).params["backward_transfers"] is False
    help_ = CliRunner().invoke(app, ["plan", "--help-all"], env={"COLUMNS": "80"}).output
    assert "--[no-]backward-transfers" in help_
    assert command.make_context("plan", [*words]).params["backward_transfers"] is False


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_parse(command: str) -> None:
    for line in EXAMPLES[command]:
        words = line.split(" > ")[0].split()
        assert words[0] == command
        with_options(command).make_context(command, words[1:])
