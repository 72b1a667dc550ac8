#!/usr/bin/env python3
"""Sets Royale up and runs it: ``python3 x.py train``, ``… test``, ``… check``.

Needs nothing but Python's standard library. Makes ``.venv`` beside itself, installs this checkout
into it with the pins of ``constraints.txt``, and remembers what it installed, so that later calls
start at once. Never touches another Python installation and never leaves a process behind.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - older Pythons reach this line and need the sentence
    sys.exit(
        "x.py: Royale needs Python 3.11 or newer, this is {}.{} ({}). Install a newer one and run "
        "x.py with it, for example: python3.11 x.py test".format(
            *sys.version_info[:2], sys.executable
        )
    )

import argparse
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "royale-setup.json"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
VENV_PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")

TRAIN_EXTRAS = frozenset({"server", "gym", "arena"})
TEST_EXTRAS = frozenset({"server", "gym", "mujoco", "fast", "dev"})
PARALLEL = ("-n", "auto", "--dist", "worksteal")  # the last tests take long: nobody idles
CLIENT_GRACE_S = 10  # for a client to end by itself once the server has ended

USAGE = """\
usage: python3 x.py COMMAND [arguments]

  train [--env arena|cartpole] [--minutes N] [-- SERVER ARGUMENTS]
       arena                    the default: train a bot for battles on this machine, 9 minutes;
                                then let it play scripted bots, and write battles as pages
       cartpole                 train CartPole-v1 with one server and two clients until solved
                                for example: python3 x.py train --minutes 3 -- --seed 3
  test [PYTEST ARGUMENTS]       run the tests, for example: python3 x.py test tests/architecture -x
       --learning               instead: the tests that train until a return bar is met
       --chaos                  instead: the tests that kill processes and cut connections
  check [--no-tests]            format, lint, types, import contracts, tests; ends with a summary

Every command first makes .venv and installs what it needs; later calls skip that.
ROYALE_PIP_ARGS holds extra arguments for pip install, for example another index for torch:
ROYALE_PIP_ARGS='--extra-index-url URL' python3 x.py train
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One thing that ``train`` can train."""

    name: str
    """Beginning of a run's name."""

    pair: tuple[str, str, str, str]
    """Policy and algorithm, each with its variant."""

    server: Mapping[str, str]
    """Flags of the server that the command line may replace, by name."""

    clients: Mapping[str, tuple[str, ...]]
    """Words of each client's command, by the client's name."""

    minutes: float | None
    """When to stop; None: when the server is done."""

    opponents: tuple[str, ...]
    """Bots to measure the result against."""


COURSES = {
    "arena": Course(
        name="arena",
        pair=("arena-policy", "default", "ppo", "arena"),
        server={
            "torch-threads": str(min(4, os.cpu_count() or 1)),  # clients rest while it learns
            "selfplay.mix": "mirror=0.2,pool=0.1,scripted=0.7",
            "algo.total-timesteps": "100000000",  # the clock ends it
            "save-every": "50",
            "log-level": "warning",  # the lines of this script are enough
        },
        clients=dict.fromkeys(
            ("battles-1", "battles-2"),
            (
                *("arena", "--battles", "64", "--log-level", "warning"),
                *("--bots", "random", "heuristic", "push"),
            ),
        ),
        minutes=9.0,
        opponents=("random", "heuristic"),
    ),
    "cartpole": Course(
        name="cartpole",
        pair=("mlp-policy", "default", "ppo", "classic"),
        server={"algo.stop-at-return": "475"},  # CartPole counts as solved
        clients=dict.fromkeys(
            ("client-1", "client-2"), ("gym", "--env-id", "CartPole-v1", "--num-envs", "8")
        ),
        minutes=None,
        opponents=(),
    ),
}


class SetupError(Exception):
    """The set-up cannot go on; the text says why and what to do."""


def say(sentence: str) -> None:
    """Print a line of x.py's own, told apart from the output of what it runs."""
    print(f"x.py: {sentence}", flush=True)


# -- set-up ------------------------------------------------------------------------------------


def ensure_installed(extras: frozenset[str]) -> None:
    """Make ``.venv`` hold this checkout with at least these extras.

    Costs three small file reads when the last installation still fits.

    Args:
        extras: Names of optional-dependency groups of ``pyproject.toml``.

    Raises:
        SetupError: If the virtual environment or the installation failed.
    """
    fingerprint = setup_fingerprint()
    installed = installed_extras(fingerprint)
    if extras <= installed:
        return
    started_s = time.monotonic()
    STAMP.unlink(missing_ok=True)  # an interrupted installation must not pass for a finished one
    if not venv_is_usable():
        make_venv()
    install(extras | installed)
    if "dev" in extras:
        compile_arena()
    STAMP.write_text(json.dumps({"fingerprint": fingerprint, "extras": sorted(extras | installed)}))
    say(f"set-up took {time.monotonic() - started_s:.0f} s; later calls skip it")


def setup_fingerprint() -> str:
    """Hash all that an installation depends on, the place of the checkout included."""
    files = [(ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256("\0".join([str(ROOT), sys.version, *files]).encode()).hexdigest()


def installed_extras(fingerprint: str) -> frozenset[str]:
    """Return the extras installed under this fingerprint; none where it does not fit."""
    if not VENV_PYTHON.exists() or not STAMP.exists():
        return frozenset()
    stamp = json.loads(STAMP.read_text())
    return frozenset(stamp["extras"]) if stamp["fingerprint"] == fingerprint else frozenset()


def venv_is_usable() -> bool:
    """Tell whether ``.venv`` has pip and the Python version that runs this script."""
    if not VENV_PYTHON.exists():
        return False
    probe = "import pip, sys; print(*sys.version_info[:2])"
    answer = subprocess.run(
        [str(VENV_PYTHON), "-c", probe], capture_output=True, text=True, check=False
    )
    return answer.stdout.split() == [str(number) for number in sys.version_info[:2]]


def make_venv() -> None:
    """Create ``.venv`` afresh, or say which package of the operating system is missing."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"{sys.executable} cannot make a virtual environment: it lacks the module "
            f"{missing[0]}. On Debian and Ubuntu: apt-get install python3-venv; then run it again."
        )
    say(f"making {VENV} with Python {sys.version.split()[0]}")
    if run(sys.executable, "-m", "venv", "--clear", VENV) != 0:
        raise SetupError(f"could not make {VENV}: the lines above say why.")


def install(extras: frozenset[str]) -> None:
    """Install this checkout, editable, with these extras and the pinned versions."""
    target = f"{ROOT}[{','.join(sorted(extras))}]"
    say(f"installing {target}; the first time this takes a minute or more and about 1.3 GB")
    pip = (VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check")
    more = shlex.split(os.environ.get("ROYALE_PIP_ARGS", ""))
    if run(*pip, *more, "-c", ROOT / "constraints.txt", "-e", target) != 0:
        raise SetupError(
            f"pip could not install {target}: its lines above say why. Where the default package "
            "index is out of reach, ROYALE_PIP_ARGS can name another source."
        )


def compile_arena() -> None:
    """Compile the arena once, and not in several processes at once, each for itself."""
    say("compiling the arena unless it is; the first time this takes about a minute")
    if run(VENV_PYTHON, "-m", "royale_client.envs.arena.warm_up") != 0:
        raise SetupError("the arena could not be compiled: the lines above say why.")


# -- processes ---------------------------------------------------------------------------------


def run(*command: str | Path) -> int:
    """Run one command in the foreground, wait for it, and return its exit code.

    A Ctrl-C at the terminal reaches the command directly; one that was sent to this process alone
    is passed on. Either way the command decides how it ends.
    """
    process = subprocess.Popen([str(word) for word in command], cwd=ROOT, text=True)
    try:
        while True:
            try:
                return exit_code(process.wait())
            except KeyboardInterrupt:
                if os.name == "posix" and not sys.stdin.isatty():
                    process.send_signal(signal.SIGINT)
    finally:
        end(process)


def exit_code(status: int) -> int:
    """Translate "ended by signal n", which is -n, to the shell's 128 + n."""
    return 128 - status if status < 0 else status


def end(process: subprocess.Popen[str], patience_s: float = 40) -> None:
    """Ask a process that still runs to end, and kill it when it takes too long."""
    for stop in (process.terminate, process.kill):
        if process.poll() is not None:
            return
        stop()
        ends_within(process, patience_s)


def ends_within(process: subprocess.Popen[str], time_s: float) -> bool:
    """Wait for a process and tell whether it ended in time."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(time_s)
    return process.poll() is not None


def leave_on(signum: int, frame: FrameType | None) -> None:
    """Handle a signal by an exception, so that every ``finally`` runs."""
    raise SystemExit(128 + signum)


class Job:
    """Processes that belong together; their lines are shown under their names.

    They do not receive the terminal's Ctrl-C themselves: ``Signals`` gives it, exactly
    once, to the one that decides. Leaving the ``with`` block ends all that still run.
    """

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *exception: object) -> None:
        for process in reversed(self._processes):
            end(process)
        for reader in self._readers:
            reader.join()

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[str]:
        """Start one process and show what it prints."""
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # without effect on Windows, where Ctrl-C reaches all of them
        )
        assert process.stdout is not None
        reader = threading.Thread(target=show_lines, args=(name, process.stdout), daemon=True)
        reader.start()
        self._processes.append(process)
        self._readers.append(reader)
        return process


def show_lines(name: str, stream: IO[str]) -> None:
    """Copy a process's lines to standard output, each under the name of the process."""
    for line in stream:
        # With the terminal gone, go on reading: a full pipe would stop the process.
        with contextlib.suppress(OSError):
            print(f"{name:>8} | {line.rstrip()}", flush=True)


class Signals:
    """Ctrl-C, a request to end and a closed terminal, all passed on to one process.

    Leaving the ``with`` block gives them their former meaning.
    """

    PASSED_ON = (("SIGINT", "SIGINT"), ("SIGTERM", "SIGTERM"), ("SIGHUP", "SIGTERM"))

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.have_come = False
        self._process = process
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        for name, passed_on in self.PASSED_ON if os.name == "posix" else ():
            signum = getattr(signal, name)
            self._before[signum] = signal.signal(signum, self._sender(getattr(signal, passed_on)))
        return self

    def __exit__(self, *exception: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _sender(self, signum: int) -> Callable[[int, FrameType | None], None]:
        def send(_signum: int, _frame: FrameType | None) -> None:
            self.have_come = True
            self._process.send_signal(signum)

        return send


# -- commands ----------------------------------------------------------------------------------


def train(arguments: list[str]) -> int:
    """Train what was asked for, measure it where that says something; return the exit code."""
    course, minutes, others = train_arguments(arguments)
    ensure_installed(TRAIN_EXTRAS)
    if course.opponents:
        compile_arena()
    with tempfile.TemporaryDirectory() as folder, Job() as job:
        address_file = Path(folder) / "address"
        command, run_directory = server_command(course, others, address_file)
        server = job.start("server", *command)
        with Signals(server) as signals:
            port = wait_for_port(server, address_file)
            clients = {
                name: job.start(name, *client_command(name, words, port))
                for name, words in course.clients.items()
                if port
            }
            watch = Watch(run_directory, minutes, course.opponents)
            code = wait_for_end(server, clients, watch)
    if run_directory.exists():
        say(f"run directory: {run_directory}")
    if code == 0 and course.opponents and not signals.have_come:
        code = measure(run_directory, course.opponents)
    say(f"ended with exit code {code}")
    return code


def train_arguments(arguments: list[str]) -> tuple[Course, float | None, list[str]]:
    """Return what to train, for how many minutes, and the arguments of the server."""
    parser = argparse.ArgumentParser(prog="x.py train", add_help=False, allow_abbrev=False)
    parser.add_argument("--env", choices=COURSES, default="arena")
    parser.add_argument("--minutes", type=float)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    chosen, others = parser.parse_known_args(arguments[:at])
    if chosen.minutes is not None and not 0 < chosen.minutes < math.inf:
        raise SetupError(f"--minutes {chosen.minutes}: expected a number above 0")
    course = COURSES[chosen.env]
    minutes = course.minutes if chosen.minutes is None else chosen.minutes
    return course, minutes, others + arguments[at + 1 :]


def server_command(
    course: Course, arguments: list[str], address_file: Path
) -> tuple[list[str | Path], Path]:
    """Return the command of a server, on a free port by default, and the run's directory."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", default="0")
    parser.add_argument("--exp-name", default=time.strftime(f"{course.name}-%Y%m%d-%H%M%S"))
    parser.add_argument("--checkpoint-base-dir", default="runs")
    for name, default in course.server.items():
        parser.add_argument(f"--{name}", default=default)
    chosen, others = parser.parse_known_args(arguments)
    command: list[str | Path] = [BIN / "royale-server", *course.pair]
    for name, value in vars(chosen).items():
        command += ["--" + name.replace("_", "-"), value]
    policy, _, algorithm, _ = course.pair
    run_directory = ROOT / chosen.checkpoint_base_dir / algorithm / policy / chosen.exp_name
    return [*command, "--address-file", address_file, *others], run_directory


def client_command(name: str, words: Sequence[str], port: int | None) -> list[str | Path]:
    """Return the command of a client."""
    url = f"ws://127.0.0.1:{port}"
    return [BIN / "royale-env-client", *words, "--client-name", name, "--server-url", url]


class Watch:
    """Says every now and then how far a run is, and asks its server to stop when time is up.

    Args:
        run_directory: Of the run; it need not exist yet.
        minutes: When time is up; None for never.
        opponents: Bots whose battles are worth a word; without any nothing is said.
    """

    SAY_EVERY_S = 20

    def __init__(
        self, run_directory: Path, minutes: float | None, opponents: Sequence[str]
    ) -> None:
        self._run_directory = run_directory
        self._opponents = opponents
        self._started_s = self._said_s = time.monotonic()
        self._ends_s = None if minutes is None else self._started_s + 60 * minutes
        self._read_to = 0

    def look(self) -> None:
        """Do what is due; called many times a second."""
        now_s = time.monotonic()
        if self._opponents and now_s - self._said_s >= self.SAY_EVERY_S:
            self._said_s = now_s
            self._say_how_far(now_s - self._started_s)
        if self._ends_s is not None and now_s >= self._ends_s and self._run_directory.exists():
            self._ends_s = None
            say("time is up: the server saves and stops")
            (self._run_directory / "control").write_text("q")

    def _say_how_far(self, passed_s: float) -> None:
        """Say frames and time, and how the battles went that ended since the last line."""
        row = last_row(self._run_directory / "metrics.jsonl")
        if row is None:
            say(f"{clock(passed_s)}: nothing has been learnt yet")
            return
        won = won_battles(self._new_episodes(), self._opponents)
        frames = row["run/step"]
        say(f"{clock(passed_s)}: {frames:,} frames, {frames / passed_s:,.0f}/s{won}")

    def _new_episodes(self) -> list[dict[str, Any]]:
        with (self._run_directory / "episodes.jsonl").open("rb") as file:
            file.seek(self._read_to)
            whole = file.read().rpartition(b"\n")[0]
        self._read_to += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines()]


def clock(passed_s: float) -> str:
    """Return a time as minutes and seconds."""
    return f"{int(passed_s) // 60}:{int(passed_s) % 60:02}"


def last_row(file: Path) -> dict[str, Any] | None:
    """Return the newest row of a file with one JSON document a line; None before the first."""
    if not file.exists():
        return None
    lines = file.read_bytes().rpartition(b"\n")[0].splitlines()
    row: dict[str, Any] | None = json.loads(lines[-1]) if lines else None
    return row


def won_battles(episodes: list[dict[str, Any]], opponents: Sequence[str]) -> str:
    """Say which share of decided battles was won against each of some bots; "" if none ended."""
    texts = []
    for name in opponents:
        fought = [e for e in episodes if e.get("opponent", "").endswith(f" {name}")]
        rates = [e.get("metrics/win_rate", (0, 0)) for e in fought]  # long lists leave some out
        decided = sum(rate[1] for rate in rates)
        if decided:
            texts.append(f"{sum(rate[0] for rate in rates) / decided:.0%} against {name}")
    return f"; won {', '.join(texts)} in training" if texts else ""


def measure(run_directory: Path, opponents: Sequence[str]) -> int:
    """Let the newest checkpoint play, and write a battle as a page; return the exit code."""
    royale, replays = BIN / "royale", run_directory / "replays"
    against = [word for name in opponents for word in ("--against", name)]
    say("measuring: every deal from both sides ...")
    code = run(royale, "eval", run_directory, *against, "--replays", replays)
    battles = sorted(replays.glob("*.json")) if code == 0 else []
    for battle in battles:
        page = battle.with_suffix(".html")
        code = code or run(royale, "replay", battle, "--page", page)
    if battles and code == 0:
        say(f"a battle to watch, in a browser: {battles[0].with_suffix('.html')}")
        say(f"the same as text: {royale} replay {battles[0]}")
    return code


def wait_for_port(server: subprocess.Popen[str], address_file: Path) -> int | None:
    """Wait until the server has written ``host:port``; None if it ended before."""
    while not address_file.exists():
        if ends_within(server, 0.05):
            return None
    return int(address_file.read_text().rpartition(":")[2])


def wait_for_end(
    server: subprocess.Popen[str], clients: dict[str, subprocess.Popen[str]], watch: Watch
) -> int:
    """Wait for the server, then for the clients it told to stop; return the job's exit code.

    A client that fails ends the job: the server is asked to save and stop.
    """
    while not ends_within(server, 0.1):
        watch.look()
        failed = [name for name, client in clients.items() if client.poll()]
        # A server that crashed takes its clients along: see first whether that is the story.
        if failed and not ends_within(server, 2):
            code = exit_code(clients[failed[0]].returncode)
            say(f"{failed[0]} failed with exit code {code}: ending the server")
            end(server)
            return code
    for client in clients.values():
        ends_within(client, CLIENT_GRACE_S)
    return exit_code(server.returncode)


def test(arguments: list[str]) -> int:
    """Run the fast tests, or the slow suites that were named; return pytest's exit code."""
    ensure_installed(TEST_EXTRAS)
    suites = [word[2:] for word in arguments if word in ("--learning", "--chaos")]
    others = [word for word in arguments if word not in ("--learning", "--chaos")]
    # The slow suites measure rates and want the machine for themselves.
    selection = ["-m", " or ".join(suites), "-n", "0"] if suites else [*PARALLEL]
    return run(VENV_PYTHON, "-m", "pytest", *selection, *others)


def check(arguments: list[str]) -> int:
    """Run every check, failed ones included, then say how each went; 1 if any failed."""
    unknown = [word for word in arguments if word != "--no-tests"]
    if unknown:
        raise SetupError(
            f"check knows --no-tests, got {' '.join(unknown)}; try python3 x.py --help."
        )
    ensure_installed(TEST_EXTRAS)
    python: list[str | Path] = [VENV_PYTHON, "-m"]
    steps: dict[str, list[str | Path]] = {
        "format": [*python, "ruff", "format", "--check", "."],
        "lint": [*python, "ruff", "check", "."],
        "types": [*python, "mypy"],
        "imports": [BIN / "lint-imports", "--no-logo"],
        "tests": [*python, "pytest", *PARALLEL],
    }
    if arguments:
        del steps["tests"]
    failed = [name for name, command in steps.items() if not passes(name, command)]
    say(f"failed: {', '.join(failed)}" if failed else f"all passed: {', '.join(steps)}")
    return 1 if failed else 0


def passes(name: str, command: list[str | Path]) -> bool:
    """Run one step of the check under a heading, and tell whether it passed."""
    say(f"{name} ...")
    started_s = time.monotonic()
    code = run(*command)
    outcome = "passed" if code == 0 else f"FAILED with exit code {code}"
    say(f"{name} {outcome} in {time.monotonic() - started_s:.1f} s")
    return code == 0


COMMANDS = {"train": train, "test": test, "check": check}


def main(arguments: list[str]) -> int:
    """Carry out one command and return the exit code of what it ran."""
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if command not in COMMANDS:
        print(USAGE, file=sys.stderr)
        print(f"x.py: no command {command!r}; there are {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, leave_on)
    # Processes share the cores: a thread that spins while it waits takes them from others.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return COMMANDS[command](arguments[1:])
    except SetupError as error:
        print(f"x.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("x.py: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
