"""One run of ``royale verify-resume``: its server, its clients, and the rows it writes.

Starts and watches processes. A client that ends while its server listens is started again; one that
keeps ending, a server that ends unasked, or a long silence is an error with the last lines of the
log.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from royale_client.wire.errors import RoyaleError
from royale_server.exit_codes import ExitCode
from royale_server.run.records import read_records
from royale_server.tools.children import END_S, Child
from royale_server.tools.comparing import ITERATION, Row, history

POLL_S = 0.1
SAY_EVERY_S = 5.0
MOST_RESTARTS = 5
URL_PLACE = "{url}"
NO_LIMIT = 10**15
"""Frames that no run reaches: the check ends a run by itself."""

_TERMINATED = 1 if sys.platform == "win32" else ExitCode.TERMINATED
"""Exit code of a server that was told to end; Windows ends it itself, with a code of its own."""

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class CheckFailedError(RoyaleError):
    """The check cannot be carried out.

    Args:
        sentence: Why.
        lines: The last lines of a log.
    """

    def __init__(self, sentence: str, lines: Sequence[str] = ()) -> None:
        super().__init__("\n".join([sentence, *(f"  | {line}" for line in lines)]))


class VerifiedRun:
    """A run, killed or not.

    Args:
        name: Its name, shown in front of every line.
        words: Words and flags of ``royale-server``.
        clients: Commands of clients; none for a run that has its environments inside.
        folder: Where runs and logs lie.
        silence_s: Longest time without a new row, until the server listens, and until it ends.
        say: Shows a line.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        clients: Sequence[str],
        *,
        folder: Path,
        silence_s: float,
        say: Callable[[str], None],
    ) -> None:
        self.name = name
        self._words = tuple(words)
        self._commands = tuple(clients)
        self._folder = folder
        self._silence_s = silence_s
        self._say = say
        self._attempt = 0
        self._server: Child | None = None
        self._clients: list[Child] = []
        self._restarts = 0
        self._url: str | None = None

    @property
    def directory(self) -> Path | None:
        """Directory of the run, once there is one."""
        return next((p.parent for p in self._folder.glob(f"runs/*/*/{self.name}/run.json")), None)

    @property
    def server(self) -> Child:
        """The server's process."""
        assert self._server is not None, "started before anything is asked of it"
        return self._server

    def rows(self) -> dict[int, Row]:
        """Its rows by iteration; those that a resume has overtaken are left out."""
        return history(self.all_rows())

    def all_rows(self) -> list[Row]:
        """All its rows, in the order in which they were written."""
        directory = self.directory
        file = None if directory is None else directory / "metrics.jsonl"
        if file is None or not file.exists():
            return []
        return [row for row in read_records(file)[0] if ITERATION in row]

    def start(self, *, resume: bool = False, environment: Mapping[str, str] | None = None) -> None:
        """Start the server, wait until it listens, and see to its clients."""
        self._attempt += 1
        words = [*self._words, "--exp-name", self.name, "--until-timesteps", str(NO_LIMIT)]
        words += ["--checkpoint-base-dir", str(self._folder / "runs")]
        words += ["--resume"] if resume else []
        address = self._folder / f"{self.name}.address"
        if self._commands:
            address.unlink(missing_ok=True)
            port = "0" if self._url is None else self._url.rpartition(":")[2]
            words += ["--port", port, "--address-file", str(address)]
        log = self._folder / f"{self.name}.server.{self._attempt}.log"
        command = [sys.executable, "-m", "royale_server", *words]
        self._server = Child(command, log, environment)
        if self._commands:
            self._wait_for_address(address)
            self._tend_clients()

    def wait_until(
        self, is_reached: Callable[[], bool], *, goal: int | None = None, may_end: bool = False
    ) -> None:
        """Watch the run until something is reached.

        Args:
            is_reached: Asked ten times a second.
            goal: The iteration it is expected in, to be shown.
            may_end: Whether the end of the server is what is waited for, too.

        Raises:
            CheckFailedError: If the server ends before, or nothing happens for too long.
        """
        latest, changed_at, said_at = -1, time.monotonic(), time.monotonic()
        while not is_reached():
            if may_end and self.server.code is not None:
                return
            self._refuse_end("ended unasked")
            self._tend_clients()
            iteration, now = max(self.rows(), default=0), time.monotonic()
            if iteration != latest:
                latest, changed_at = iteration, now
            if now - changed_at > self._silence_s:
                self._fail(f"wrote no row for {self._silence_s:g} s")
            if now - said_at > SAY_EVERY_S:
                said_at = now
                self._say(f"{self.name}: iteration {latest}" + (f" of {goal}" if goal else ""))
            time.sleep(POLL_S)

    def check_killed(self, by: str) -> None:
        """Refuse to go on if the server runs, or has ended in any way but by SIGKILL.

        Args:
            by: What was to kill it.
        """
        if self.server.code is None:
            raise CheckFailedError(f"{self.name}: {by} was not reached, the server still runs")
        if sys.platform != "win32" and self.server.code != -signal.SIGKILL:
            self._fail(f"ended with exit code {self.server.code} and was to be killed at {by}")

    def stop(self) -> None:
        """End the server in order, and with it the clients.

        Raises:
            CheckFailedError: If it does not end, or its exit code is not that of such an end.
        """
        expected: int = ExitCode.FINISHED
        if self.server.code is None:
            expected = _TERMINATED
            self.server.terminate()
            if not self.server.wait(self._silence_s):
                self._fail(f"was told to end and still runs after {self._silence_s:g} s")
        if self.server.code != expected:
            self._fail(f"ended with exit code {self.server.code}, and {expected:d} was expected")
        for client in self._clients:
            client.wait(END_S)
        self.close()

    def close(self) -> None:
        """Make sure that nothing of it runs any more."""
        for child in [*self._clients, *([self._server] if self._server else [])]:
            child.kill()

    # --- server and clients ---------------------------------------------------------------

    def _wait_for_address(self, file: Path) -> None:
        deadline = time.monotonic() + self._silence_s
        while not file.exists() or not file.read_text("utf-8").strip():
            self._refuse_end("did not start")
            if time.monotonic() > deadline:
                self._fail(f"does not listen after {self._silence_s:g} s")
            time.sleep(POLL_S)
        host, _, port = file.read_text("utf-8").strip().rpartition(":")
        host = _ANY_ADDRESS.get(host.strip("[]"), host.strip("[]"))
        self._url = f"ws://[{host}]:{port}" if ":" in host else f"ws://{host}:{port}"

    def _tend_clients(self) -> None:
        """Start the clients that do not run, while there is a server to talk to."""
        if self.server.code is not None:
            return
        if not self._clients:
            self._clients = [self._start_client(i) for i in range(len(self._commands))]
        for i, client in enumerate(self._clients):
            if client.code is None:
                continue
            self._restarts += 1
            if self._restarts > MOST_RESTARTS:
                raise CheckFailedError(
                    f"{self.name}: a client ends again and again, with exit code {client.code}: "
                    f"{shlex.join(client.words)}",
                    client.tail,
                )
            self._say(f"{self.name}: client {i + 1} ended with {client.code}; started again")
            self._clients[i] = self._start_client(i)

    def _start_client(self, index: int) -> Child:
        assert self._url is not None, "the server listens before its clients start"
        words = client_words(self._commands[index], self._url)
        return Child(words, self._folder / f"{self.name}.client-{index + 1}.log")

    def _refuse_end(self, what: str) -> None:
        if self.server.code is not None:
            self._fail(f"{what} (exit code {self.server.code})")

    def _fail(self, what: str) -> None:
        tail = self.server.tail
        raise CheckFailedError(f"{self.name}: the server {what}; {self.server.log} ends:", tail)


def client_words(command: str, url: str) -> list[str]:
    """The words of a client's command, with the server's address in its place or at the end.

    Raises:
        ValueError: If the command's quotes do not match.
    """
    words = shlex.split(command)
    if any(URL_PLACE in word for word in words):
        return [word.replace(URL_PLACE, url) for word in words]
    return [*words, "--server-url", url]
