"""Flags: names and kinds come from the settings; a wrong spelling is answered by the right one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from royale_server.cli_flags import field_docstrings, flags_of
from royale_server.cli_hints import check_flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A group."""

    enabled: bool = False
    """Whether
    it is on."""
    mode: Literal["slow", "fast"] = "slow"
    """How."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Common settings."""

    learning_rate: float = 3e-4
    """Step size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algo(Base):
    """Settings of an algorithm."""

    clip_coef: float = 0.2
    """Clip."""
    target_kl: float | None = None
    """Limit."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths."""
    anneal: bool = True
    """Anneal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Settings of a server."""

    algo: Algo = field(default_factory=Algo)
    """The algorithm."""
    port: int = 8000
    """Where."""
    exp_name: str | None = None
    """Name."""
    resume: bool = False
    """Go on."""
    base_dir: Path = Path("runs")
    """Folder."""
    track: Inner = field(default_factory=Inner)
    """Group."""
    plugin: tuple[str, ...] = field(default=(), metadata={"repeatable": True})
    """Modules."""
    words: str = field(default="", metadata={"flag": False})
    """No flag."""


FLAGS = flags_of(Server())


def problems(*tokens):
    return check_flags(FLAGS, tokens).problems


def test_flags_are_spelled_from_the_field_path():
    assert [flag.name for flag in FLAGS] == [
        "--algo.learning-rate",
        "--algo.clip-coef",
        "--algo.target-kl",
        "--algo.hidden-sizes",
        "--algo.anneal",
        "--port",
        "--exp-name",
        "--resume",
        "--base-dir",
        "--track.enabled",
        "--track.mode",
        "--plugin",
    ]


def test_kinds_follow_from_types():
    kinds = {flag.path[-1]: (flag.kind, flag.item_kind, flag.optional) for flag in FLAGS}
    assert kinds["port"] == ("integer", "integer", False)
    assert kinds["target_kl"] == ("number", "number", True)
    assert kinds["hidden_sizes"] == ("several", "integer", False)
    assert kinds["resume"] == ("switch", "switch", False)
    assert kinds["mode"] == ("choice", "choice", False)
    assert kinds["base_dir"] == ("text", "text", False)


def test_meanings_are_the_strings_below_the_fields_base_classes_included():
    assert field_docstrings(Algo)["learning_rate"] == "Step size."
    assert field_docstrings(Inner)["enabled"] == "Whether it is on."


def test_right_flags_pass_in_the_spelling_of_the_parser():
    checked = check_flags(
        FLAGS,
        [
            "--port=7000",
            "--resume",
            "--track.no-enabled",
            "--algo.hidden_sizes",
            "8",
            "9",
            "--exp-name",
            "none",
            "--plugin",
            "a",
            "--plugin",
            "b",
        ],
    )
    assert checked.problems == []
    assert checked.tokens == (
        [
            "--port",
            "7000",
            "--resume",
            "--track.no-enabled",
            "--algo.hidden-sizes",
            "8",
            "9",
            "--exp-name",
            "None",
            "--plugin",
            "a",
            "--plugin",
            "b",
        ]
    )
    assert checked.given == {
        ("port",),
        ("resume",),
        ("track", "enabled"),
        ("algo", "hidden_sizes"),
        ("exp_name",),
        ("plugin",),
    }


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (
            "--resume True",
            "--resume: takes no value, got 'True'; write --resume to switch it on, "
            "--no-resume to switch it off",
        ),
        (
            "--track false",
            "--track: is a group of flags; write --track.enabled to switch it on, "
            "--track.no-enabled to switch it off",
        ),
        ("--port none", "--port: takes a whole number, got 'none'; write --port 8000"),
        ("--port None", "--port: takes a whole number, got 'None'; write --port 8000"),
        ("--port 8e3", "--port: takes a whole number, got '8e3'; write --port 8000"),
        ("--port 12.5", "--port: takes a whole number, got '12.5'; write --port 8000"),
        ("--port", "--port: needs a whole number; write --port 8000"),
        ("--port 1 2", "--port: takes one value, got '2' besides; write --port 1"),
        ("--port 1 --port 2", "--port: given twice; keep one of them"),
        ("--clip-coef 0.1", "--clip-coef: is unknown; write --algo.clip-coef 0.1"),
        ("--algo.port 1", "--algo.port: is unknown; write --port 1"),
        ("--no-enabled", "--no-enabled: is unknown; write --track.no-enabled"),
        ("--no-track.enabled", "--no-track.enabled: write --track.no-enabled"),
        ("--algo.clip-cof 1", "--algo.clip-cof: is unknown; did you mean --algo.clip-coef?"),
        (
            "--zzz",
            "--zzz: is unknown; --help after the four words lists all flags",
        ),
        (
            "--track.mode FAST",
            "--track.mode: takes one of slow, fast, got 'FAST'; write --track.mode fast",
        ),
        (
            "--algo.clip-coef small",
            "--algo.clip-coef: takes a number, got 'small'; write --algo.clip-coef 0.2",
        ),
        (
            "--algo.target-kl small",
            "--algo.target-kl: takes a number or none, got 'small'; write --algo.target-kl 1.0",
        ),
        (
            "--algo.hidden-sizes 64 x",
            "--algo.hidden-sizes: takes whole numbers, got 'x'; write --algo.hidden-sizes 64 64",
        ),
        ("word", "unexpected word 'word' after the four words"),
    ],
)
def test_a_wrong_spelling_is_answered_with_the_one_that_works(tokens, sentence):
    assert problems(*tokens.split()) == [sentence]


def test_a_group_without_a_switch_names_its_flags():
    assert problems("--algo", "x")[0].startswith(
        "--algo: is a group of flags; write one of --algo.learning-rate, --algo.clip-coef,"
    )


def test_all_mistakes_are_named_at_once_and_the_rest_still_counts():
    checked = check_flags(FLAGS, ["--port", "8e3", "--resume", "yes", "--exp-name", "first"])
    assert len(checked.problems) == 2
    assert checked.tokens == ["--exp-name", "first"]


def test_a_token_is_never_repeated_in_the_answer():
    (problem,) = problems("--token", "secret-word")
    assert "--token-file" in problem
    assert "ROYALE_TOKEN" in problem
    assert "secret-word" not in problem


def test_negative_numbers_are_values_not_flags():
    assert check_flags(FLAGS, ["--algo.clip-coef", "-1"]).tokens == ["--algo.clip-coef", "-1"]
