"""Every fence of README and docs is run, or says why not."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs import fork_server
from tests.docs.pages import DIRECTIVES, PAGES, PYTHON, ROOT, SHELL, Fence, fences

COMMAND_TIMEOUT_S = 45.0
ALL = [fence for page in PAGES for fence in fences(page)]
LANGUAGES_THAT_NOBODY_TYPES = {"", "toml", "hex hello", "hex step", "hex action"}
TO_RUN = {"", "dry run", "run with", "run side by side", "run against"}

Environment = dict[str, str]


def place(fence: Fence) -> str:
    return fence.place


def runs(fence: Fence) -> bool:
    return fence.language in (SHELL, PYTHON) and fence.directive in TO_RUN


@pytest.mark.parametrize("fence", ALL, ids=place)
def test_fence_says_what_is_to_be_done_with_it(fence):
    if fence.directive:
        assert fence.directive in DIRECTIVES
        assert fence.directive == "dry run" or fence.argument, "the comment lacks its argument"
    if fence.language == PYTHON:
        assert fence.directive in ("not run", "run against", "file")
    elif fence.language == SHELL:
        assert fence.directive not in ("run against", "file")
    else:
        assert fence.language in LANGUAGES_THAT_NOBODY_TYPES
        assert not any(
            line.startswith(("royale-", "python", "pip ", "$ ")) for line in fence.commands()
        )


@pytest.mark.parametrize("fence", [f for f in ALL if f.directive == "file"], ids=place)
def test_fence_shows_the_whole_file_it_names(fence):
    assert fence.body == (ROOT / fence.argument).read_text("utf-8")


@pytest.mark.parametrize("example", sorted((ROOT / "docs" / "examples").glob("*.py")), ids=str)
def test_example_is_shown_in_a_page(example):
    assert str(example.relative_to(ROOT)) in [f.argument for f in ALL if f.directive == "file"]


def test_environment_of_the_readme_has_at_most_15_lines():
    (fence,) = [f for f in fences(ROOT / "README.md") if f.language == PYTHON]
    assert len(fence.body.splitlines()) <= 15


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(map(runs, fences(p)))], ids=lambda p: p.name
)
def test_commands_of_the_page_run_in_order(page, checkout, page_environment):
    for fence in filter(runs, fences(page)):
        problem = run_fence(fence, checkout, page_environment)
        assert problem is None, f"{fence.place}: {problem}"


def run_fence(fence: Fence, directory: Path, environment: Environment) -> str | None:
    """Run a fence; return what went wrong, or None."""
    match fence.directive:
        case "dry run":
            return run_script(fence, directory, {**environment, fork_server.DRY_RUN: "1"})
        case "run with" | "":
            return run_script(fence, directory, {**environment, fork_server.FLAGS: fence.argument})
        case "run side by side":
            exports = [line for line in fence.commands() if line.startswith("export ")]
            server, *clients = [line for line in fence.commands() if line not in exports]
            together = {**environment, fork_server.FLAGS: fence.argument}
            clients = ["\n".join([*exports, client]) for client in clients]
            return run_together("\n".join([*exports, server]), clients, directory, together)
        case "run against":
            assert fork_server.URL_OF_THE_PAGES in fence.body, "the program names no server"
            program = directory / "program.py"
            variable = '__import__("sys").argv[1]'
            url = f'"{fork_server.URL_OF_THE_PAGES}"'
            program.write_text(fence.body.replace(url, variable), "utf-8")
            server = f"{fork_server.SERVER} {fence.argument}"
            return run_together(server, ["python program.py"], directory, environment)
    raise AssertionError(fence.directive)


def run_script(fence: Fence, directory: Path, environment: Environment) -> str | None:
    """Run all lines as one script that ends at the first failure."""
    with start(fence.body, directory, environment) as script:
        return failure(script, fence.body)


def run_together(
    server: str, clients: list[str], directory: Path, environment: Environment
) -> str | None:
    """Run a server and its clients at once; all of them must end with exit code 0."""
    address = directory / "address"
    address.unlink(missing_ok=True)
    environment = {**environment, fork_server.ADDRESS: str(address)}
    with ExitStack() as stack:
        serving = stack.enter_context(start(server, directory, environment))
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not address.exists():
            if serving.poll() is not None or time.monotonic() > deadline:
                return failure(serving, server) or f"{server}: ended without listening"
            time.sleep(0.02)
        started = {server: serving}
        for client in clients:
            started[client] = stack.enter_context(start(client, directory, environment))
        problems = [failure(process, text) for text, process in started.items()]
    return next((problem for problem in problems if problem), None)


def start(script: str, directory: Path, environment: Environment) -> subprocess.Popen[str]:
    """Start a shell script; leaving its context waits for it."""
    return subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def failure(process: subprocess.Popen[str], text: str) -> str | None:
    """Wait for a process; return its text and output if it failed or took too long."""
    try:
        output, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        return f"{text}\ntook longer than {COMMAND_TIMEOUT_S:g} s{os.linesep}{output}"
    return None if process.returncode == 0 else f"{text}\nexit code {process.returncode}\n{output}"
