"""One process, no socket: the client's loop and the server's core on one thread.

For debugging, and the floor of every comparison: the same client loop, sessions, scheduler,
storage and learner as over the network, with messages handed over in memory. The only server
module that imports the client beyond its wire format.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from royale_client.driver import EnvDriver
from royale_client.envs.options import chosen_env
from royale_client.hello import make_hello
from royale_client.loop import EnvLoop
from royale_client.probing import ProbingFailedError, ask
from royale_client.transport import ConnectionLostError
from royale_client.wire.messages import Hello
from royale_client.wire.probes import PROBE, QUESTIONS
from royale_server.config import ServerConfig
from royale_server.endpoint.hub import Hub
from royale_server.endpoint.probing import ProbeReport
from royale_server.exit_codes import ExitCode
from royale_server.model.worker import InlineWorker
from royale_server.run.control import POLL_S
from royale_server.run.inbox import Inbox
from royale_server.stop_signals import handle_stop_signals
from royale_server.trainer import End, Trainer

if TYPE_CHECKING:
    from royale_server.app import Run

CLIENT_NAME = "inline"
IDLE_SLEEP_S = 0.005


class InlineTransport:
    """The client's transport and the server's connection at once.

    Receiving runs the server until there is something to receive.
    """

    address = "inline"

    def __init__(
        self,
        hub: Hub,
        worker: InlineWorker,
        trainer: Trainer,
        posted: deque[Callable[[], None]],
        inbox: Inbox,
    ) -> None:
        self._inbox = inbox
        self._look_again_at = 0.0
        self._posted = posted  # callbacks of the writer thread, to be run on this one
        self._hub = hub
        self._worker = worker
        self._trainer = trainer
        self._to_client: deque[bytes] = deque()
        self._is_closed = False
        self._peer = hub.opened(_ServerSide(self))

    def send(self, data: bytes) -> None:
        """Hand a message to the server."""
        if self._is_closed and not self._to_client:
            raise ConnectionLostError("the inline server ended the session", retry=False)
        self._hub.received(self._peer, data)

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Run the server until it has an answer, or until the time is up."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._to_client:
            if self._is_closed:
                raise ConnectionLostError("the inline server ended the session", retry=False)
            if deadline is not None and time.monotonic() >= deadline:
                return None
            self.run_server()
        return self._to_client.popleft()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Tell the server that the client is gone."""
        del code
        self._hub.closed(self._peer, reason)

    def deliver(self, data: bytes) -> None:
        """Take a message from the server."""
        self._to_client.append(data)

    def end(self) -> None:
        """The server closed; what it sent before can still be received."""
        self._is_closed = True

    def run_server(self) -> None:
        """Run what the writer handed over, one job, or what is due by time."""
        while self._posted:
            self._posted.popleft()()
        self._steer()
        if self._worker.run_pending():
            return
        self._hub.tick()
        self._trainer.tick()
        time.sleep(IDLE_SLEEP_S)  # only a timer or a signal can change anything now

    def _steer(self) -> None:
        """Look for what a person asks of the run now and then."""
        now = time.monotonic()
        if now < self._look_again_at:
            return
        self._look_again_at = now + POLL_S
        self._inbox.look(self._trainer.steering.letter, self._trainer.steering.request)


class _ServerSide:
    """The hub's view of the inline client."""

    address = "inline"

    def __init__(self, transport: InlineTransport) -> None:
        self._transport = transport

    def send(self, data: bytes) -> None:
        self._transport.deliver(data)

    def close(self, reason: str) -> None:
        del reason
        self._transport.end()


def run_inline(config: ServerConfig, assemble: Callable[..., Run]) -> int:
    """Run environments and training in this thread until the run ends.

    Args:
        config: Settings; ``inline`` names an environment, as `chosen_env` reads it.
        assemble: Joins trainer and hub around a model worker.

    Returns:
        The exit code.

    Raises:
        ConfigError: If there is no such environment, or it cannot be built as told.
    """
    driver, hello = _client_of(config)
    worker = InlineWorker()
    codes: list[ExitCode] = []
    posted: deque[Callable[[], None]] = deque()
    run = assemble(model=worker, post=posted.append, on_end=codes.append)
    inbox = Inbox(run.attempt.layout)
    transport = InlineTransport(run.hub, worker, run.trainer, posted, inbox)
    handle_stop_signals(partial(_stop_soon, run.trainer, worker))
    with contextlib.suppress(ConnectionLostError):
        EnvLoop([driver], hello).converse(transport)
    while not codes:
        transport.run_server()
    driver.close()
    return codes[0]


def visit(config: ServerConfig) -> ProbeReport:
    """Build the environments, ask them what a server asks a client, and close them.

    Args:
        config: Settings; ``inline`` names an environment, as `chosen_env` reads it.
    """
    driver, hello = _client_of(config)
    answers, failures = {}, {}
    try:
        for question in QUESTIONS if PROBE in hello.features else ():
            try:
                answers[question] = ask(driver, question)
            except ProbingFailedError as error:
                failures[question] = str(error)
    finally:
        driver.close()
    return ProbeReport(hello=hello, answers=answers, failures=failures)


def _client_of(config: ServerConfig) -> tuple[EnvDriver, Hello]:
    """Build the environments in this process, and what they say of themselves."""
    assert config.inline is not None
    family, settings = chosen_env(config.inline, json.loads(config.inline_env_kwargs or "{}"))
    driver = family.make(settings, config.inline_num_envs)
    hello = make_hello(
        [driver],
        role="eval" if getattr(config.algo, "needs_weights", False) else "train",
        client_name=CLIENT_NAME,
        env_id=family.env_id(settings),
        facts=family.facts(settings),
    )
    return driver, hello


def _stop_soon(trainer: Trainer, worker: InlineWorker, end: End, why: str) -> None:
    """Stop from a signal handler: between two jobs, unless a learn step is to be told."""
    if trainer.is_learning:
        trainer.signalled(end, why)
    else:
        worker.submit(lambda: None, lambda _: trainer.signalled(end, why), trainer.failed)
