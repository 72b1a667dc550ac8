"""Servers and clients as processes: started, listened to, signalled, and always ended.

Waiting is for something that happens: a line of output, the end of a process; never for time. A
wait has a generous limit, since other work may share the machine; a failed one shows the output.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TypeVar

from tests.system import zygote

ROOT = zygote.ROOT

PATIENCE_S = 60.0
"""Limit of every wait for something that takes a second or two on a quiet machine."""

POLL_S = 0.02
"""Pause between two looks at something that announces itself to nobody, such as a file."""

PPO = ("mlp-policy", "default", "ppo", "classic")
DUMMY = ("dummy-policy", "default", "dummy", "default")
CARTPOLE = ("gym", "--env-id", "CartPole-v1")

Value = TypeVar("Value")


class Program:
    """One running command.

    Args:
        name: For messages and for the name of its log.
        pid: Its process number.
        output: Where its standard output and error can be read.
        log: File that receives a copy of the output.
        report: Where its exit code will arrive.
    """

    def __init__(
        self, name: str, pid: int, output: IO[str], log: Path, report: socket.socket
    ) -> None:
        self.name = name
        self.pid = pid
        self._log = log
        self._report = report
        self._lines: list[str] = []
        self._is_silent = False
        self._changed = threading.Condition()
        self._code: int | None = None
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """Everything it has written so far."""
        with self._changed:
            return "".join(self._lines)

    def count(self, pattern: str) -> int:
        """Count the lines written so far that match."""
        return len([line for line in self.output.splitlines() if re.search(pattern, line)])

    def wait_for(
        self, pattern: str, timeout_s: float = PATIENCE_S, times: int = 1
    ) -> re.Match[str]:
        """Wait until ``times`` lines match, and return the match of the last of them."""
        deadline = time.monotonic() + timeout_s
        seen, found = 0, []
        with self._changed:
            while len(found) < times:
                for line in self._lines[seen:]:
                    match = re.search(pattern, line)
                    if match:
                        found.append(match)
                seen = len(self._lines)
                if len(found) >= times:
                    break
                left_s = deadline - time.monotonic()
                what = f"{self.name}: {len(found)} of {times} lines match {pattern!r}"
                assert not self._is_silent, f"{what}, and it has ended:\n{self._tail()}"
                assert left_s > 0, f"{what} after {timeout_s:g} s:\n{self._tail()}"
                self._changed.wait(left_s)
        return found[times - 1]

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end and all its output, and return its exit code (negative: a signal)."""
        if self._code is None:
            try:
                self._code = read_number(self._report, timeout_s)
            except TimeoutError:
                text = f"{self.name} still runs after {timeout_s:g} s:\n{self._tail()}"
                raise AssertionError(text) from None
            self._report.close()
            self._reader.join(PATIENCE_S)
        return self._code

    def is_running(self) -> bool:
        """Say whether it has not ended yet."""
        return self._code is None and not select.select([self._report], [], [], 0)[0]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        self.signal(signal.SIGINT)

    def end(self) -> None:
        """Make sure that it has ended."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
        self.wait()

    def _read(self, output: IO[str]) -> None:
        with output, self._log.open("a", encoding="utf-8") as log:
            for line in output:
                log.write(line)
                log.flush()
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._is_silent = True
            self._changed.notify_all()

    def _tail(self) -> str:
        return "".join(self._lines[-40:])


class Server:
    """A server that listens.

    Args:
        program: Its process.
        host: Where it listens.
        port: Where it listens.
        runs: Folder of its runs.
    """

    def __init__(self, program: Program, host: str, port: int, runs: Path) -> None:
        self.program = program
        self.host = host
        self.port = port
        self.runs = runs

    @property
    def url(self) -> str:
        """What a client connects to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ws://{host}:{self.port}"

    @property
    def run(self) -> Path:
        """Directory of its run, the only one in its folder."""
        return only_run(self.runs)

    def wait_for(
        self, pattern: str, timeout_s: float = PATIENCE_S, times: int = 1
    ) -> re.Match[str]:
        """See `Program.wait_for`."""
        return self.program.wait_for(pattern, timeout_s, times)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """See `Program.wait`."""
        return self.program.wait(timeout_s)

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        self.program.interrupt()

    @property
    def output(self) -> str:
        """Everything it has written so far."""
        return self.program.output


class Zygote:
    """The process whose forks are our commands. See `zygote`."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ROYALE_")}
        # Clients start processes of their own, in a directory that is not the checkout.
        clean |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, zygote.__file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=clean,
            start_new_session=True,
        )
        theirs.close()

    def start(
        self,
        name: str,
        program: str,
        arguments: tuple[str, ...],
        *,
        directory: Path,
        environment: Mapping[str, str],
    ) -> Program:
        """Start a command; its log lies in ``directory``."""
        reading, writing = os.pipe()
        report, theirs = socket.socketpair()
        request = {
            "program": program,
            "arguments": arguments,
            "directory": str(directory),
            "environment": dict(environment),
        }
        data = json.dumps(request).encode()
        socket.send_fds(self._control, [data], [writing, theirs.fileno()])
        os.close(writing)
        theirs.close()
        pid = read_number(report, PATIENCE_S)
        output = open(reading, encoding="utf-8", errors="replace")  # noqa: SIM115 the reader closes it
        log = directory / f"{name}.log"
        return Program(name, pid, output, log, report)

    def close(self) -> None:
        """End it, and with it whatever it started."""
        self._control.close()
        self._process.wait(PATIENCE_S)


class Processes:
    """The processes of one test. End them with `close`.

    Args:
        directory: Scratch directory: logs, address files, and runs unless told otherwise.
        zygote: Starts them.
    """

    def __init__(self, directory: Path, zygote: Zygote) -> None:
        self.directory = directory
        self.all: list[Program] = []
        self.may_crash: list[Program] = []
        """Programs whose output may hold a traceback."""
        self._zygote = zygote

    @property
    def run(self) -> Path:
        """Directory of the only run of this test."""
        return only_run(self.directory / "runs")

    def start(
        self,
        program: str,
        *arguments: object,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a command."""
        name = f"{len(self.all)}-{name or program}"
        words = tuple(map(str, arguments))
        started = self._zygote.start(
            name, program, words, directory=self.directory, environment=environment or {}
        )
        self.all.append(started)
        return started

    def try_server(
        self,
        *flags: object,
        pair: tuple[str, ...] = PPO,
        runs: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a server that may refuse to."""
        base = ("--checkpoint-base-dir", runs or self.directory / "runs")
        return self.start(zygote.SERVER, *pair, *base, *flags, environment=environment)

    def server(
        self,
        *flags: object,
        pair: tuple[str, ...] = PPO,
        runs: Path | None = None,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        """Start a server and wait until it listens."""
        address_file = self.directory / f"address-{len(self.all)}"
        where = ("--port", port, "--address-file", address_file)
        program = self.try_server(*where, *flags, pair=pair, runs=runs, environment=environment)
        program.wait_for("listening on")
        host, _, found = address_file.read_text(encoding="utf-8").strip().rpartition(":")
        return Server(program, host, int(found), runs or self.directory / "runs")

    def client(
        self,
        server: Server | str,
        *arguments: object,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start a client; ``arguments`` begin with the environment."""
        url = server if isinstance(server, str) else server.url
        words: list[object] = [*arguments, "--server-url", url]
        if name is not None:
            words += ["--client-name", name]
        return self.start(zygote.CLIENT, *words, name=name or "client", environment=environment)

    def close(self) -> None:
        """End all processes and show what they wrote (pytest hides it unless the test failed)."""
        for program in reversed(self.all):
            program.end()
        for program in self.all:
            print(f"----- {program.name} (exit code {program.wait()})\n{program.output}")


def only_run(runs: Path) -> Path:
    """Return the directory of the only run in a folder of runs."""
    (found,) = runs.glob("*/*/*/run.json")
    return found.parent


def read_number(connection: socket.socket, timeout_s: float) -> int:
    """Receive one number of a zygote.

    Raises:
        TimeoutError: If it does not come in time.
    """
    connection.settimeout(timeout_s)
    data = connection.recv(zygote.NUMBER.size)
    if not data:
        raise AssertionError("the process that started our commands is gone")
    (number,) = zygote.NUMBER.unpack(data)
    return int(number)


def eventually(look: Callable[[], Value | None], what: str, timeout_s: float = PATIENCE_S) -> Value:
    """Look again and again until there is something true to see, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not after {timeout_s:g} s"
        time.sleep(POLL_S)
    return found
