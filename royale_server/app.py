"""Assembles one run from a validated configuration, runs it, and returns its exit code.

The only module that knows all parts. Order of a start: validate everything, create the run
directory, listen, build the engine when the first client says what its environment is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from royale_client.wire.errors import ConfigError
from royale_client.wire.limits import MIB
from royale_server.alarms.declaration import Alarm
from royale_server.config import ServerConfig
from royale_server.endpoint.admission import Admission
from royale_server.endpoint.entry import EntryRules
from royale_server.endpoint.hub import Hub
from royale_server.endpoint.websocket_server import WebSocketServer, write_address
from royale_server.exit_codes import ExitCode
from royale_server.model.build import Components, preload
from royale_server.model.worker import ModelThread, ModelWorker
from royale_server.monitoring.console import Console
from royale_server.monitoring.console_text import server_url
from royale_server.monitoring.logging_setup import copied_to
from royale_server.preconditions import read_tls, read_token
from royale_server.preflight.check import judge
from royale_server.preflight.examine import examine
from royale_server.preflight.finding import PreflightError, failures
from royale_server.preflight.start_checks import START_CHECKS
from royale_server.registry import AlgorithmEntry, PolicyEntry
from royale_server.resume_command import resume_command
from royale_server.run.attempt import Attempt, open_attempt
from royale_server.run.control import ControlThread
from royale_server.run.inbox import Inbox
from royale_server.run.output import WriteFailure
from royale_server.saved_run import from_contents
from royale_server.saver import Mark
from royale_server.stop_signals import handle_stop_signals, interrupt_on_sigterm
from royale_server.trainer import Start, Trainer
from royale_server.watch import Surroundings, Watch

logger = logging.getLogger(__name__)

TICK_S = 0.1
MODEL_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """The assembled parts of one attempt."""

    trainer: Trainer
    hub: Hub
    attempt: Attempt


def run(
    config: ServerConfig,
    *,
    policy_entry: PolicyEntry,
    algo_entry: AlgorithmEntry,
    console: Console,
    alarms: Sequence[Alarm] = (),
) -> int:
    """Run one attempt to its end.

    Args:
        config: A validated configuration.
        policy_entry: The chosen policy.
        algo_entry: The chosen algorithm.
        console: Where a person watches.
        alarms: What is asked of every metrics row.

    Returns:
        The exit code.

    Raises:
        PreflightError: If a check refuses the run; it names all that do.
        RoyaleError: If the disk or the port has changed since.
    """
    interrupt_on_sigterm()
    examined = examine(config, policy_entry, algo_entry)
    findings = judge(START_CHECKS, examined.facts)
    if failures(findings):
        raise PreflightError(findings)
    components = examined.components
    assert components is not None, "nothing was refused"
    with (
        open_attempt(
            config, _report_write_failure, alarms=alarms, prepared=examined.prepared
        ) as attempt,
        copied_to(attempt.log_file),
    ):
        start = Start(
            attempt=attempt.number,
            directory=attempt.path,
            resumed=None if attempt.resumed is None else from_contents(attempt.resumed),
            resumed_from=None if attempt.resumed is None else Mark.of(attempt.resumed),
            warm_start=examined.warm_start,
            run_id=attempt.run_id,
            facts=attempt.facts,
        )
        console.starting(config, run_directory=attempt.path, attempt=attempt.number)
        attempt.announce()
        console.checked(findings)
        Inbox(attempt.layout).clear()
        assembled = partial(assemble, config, components, start, attempt, console)
        if config.inline is not None:
            from royale_server.inline import run_inline

            return run_inline(config, assembled)
        with asyncio.Runner(loop_factory=_fast_loop_factory()) as runner:
            code, model = runner.run(_serve(config, assembled, console))
    if model.is_alive:
        # Torch on a daemon thread aborts the interpreter's exit; everything is written by now.
        logger.warning("leaving while the model thread is still busy")
        logging.shutdown()
        os._exit(code)
    return code


def assemble(
    config: ServerConfig,
    components: Components,
    start: Start,
    attempt: Attempt,
    console: Console,
    *,
    model: ModelWorker,
    post: Callable[[Callable[[], None]], None],
    on_end: Callable[[ExitCode], None],
) -> Run:
    """Join trainer, admission and hub around a model worker."""
    watch = Watch(
        alarms=attempt.alarms,
        writer=attempt.writer,
        surroundings=Surroundings(
            layout=attempt.layout,
            seed=config.seed,
            resume_command=resume_command(console.arguments, exp_name=attempt.name),
        ),
        feedback_wait_timeout_s=config.feedback_wait_timeout,
        clock=time.monotonic,
        post=post,
    )
    trainer = Trainer(
        config=config,
        components=components,
        start=start,
        model=model,
        writer=attempt.writer,
        console=console,
        watch=watch,
        clock=time.monotonic,
        post=post,
        on_begin=attempt.begin,
        row_marks=lambda: attempt.row_marks,
        on_end=on_end,
    )
    admission = Admission(
        config,
        run_id=attempt.run_id,
        run_name=attempt.name,
        on_first_spaces=trainer.spaces_known,
        environments=attempt,
    )
    if start.resumed is not None:
        admission.spaces = start.resumed.spaces
        attempt.resumed = None  # what it held is in ``start``, and goes when the engine has it
    hub = Hub(
        config=config,
        limits=config.limits(),
        admission=admission,
        model=model,
        listener=trainer,
        clock=time.monotonic,
    )
    trainer.hub = hub
    attempt.alarms.on_change = lambda changes: post(partial(trainer.alarmed, changes))
    if admission.spaces is not None:
        trainer.spaces_known(admission.spaces)
    return Run(trainer, hub, attempt)


def _fast_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop where the extra ``fast`` is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    config: ServerConfig, assembled: Callable[..., Run], console: Console
) -> tuple[int, ModelThread]:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[ExitCode] = loop.create_future()

    def on_end(code: ExitCode) -> None:
        if not ended.done():
            ended.set_result(code)

    def on_preload_failed(error: BaseException) -> None:
        logger.error("torch cannot be used: %s", error)
        on_end(ExitCode.CRASHED)

    def guarded(callback: Callable[[], None]) -> None:
        """What fails here would otherwise only be logged, and the run go on half-dead."""
        try:
            callback()
        except Exception as error:
            joined.trainer.failed(error)

    def post(callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop closed while a last line was on its way
            loop.call_soon_threadsafe(guarded, callback)

    model = ModelThread(post)
    model.submit(preload, lambda _: None, on_preload_failed)
    joined = assembled(model=model, post=post, on_end=on_end)
    handle_stop_signals(lambda end, why: post(partial(joined.trainer.signalled, end, why)))
    joined.hub.on_wake = _Alarm(loop, partial(guarded, joined.hub.advance)).set
    rules = EntryRules.of(
        token=read_token(config, os.environ),
        host=config.host,
        allow_host=config.allow_host,
        allow_origin=config.allow_origin,
    )
    server = WebSocketServer(
        joined.hub,
        limits=config.limits(),
        rules=rules,
        max_sessions=config.max_sessions,
        max_unread_bytes=config.max_unread_mib * MIB,
        ping_timeout_s=config.ping_timeout,
        patience_s=config.feedback_wait_timeout,
    )
    urls = await _listen(server, config)
    console.listening(urls, clients_wanted=config.min_clients)
    ticking = asyncio.create_task(_tick(joined, guarded))
    inbox, steering = Inbox(joined.attempt.layout), joined.trainer.steering
    control = ControlThread(
        lambda: inbox.look(
            lambda letter: post(partial(steering.letter, letter)),
            lambda request: post(partial(steering.request, request)),
        )
    )
    try:
        code = await ended
    finally:
        ticking.cancel()
        control.stop()
        await server.stop()
    model.close(MODEL_CLOSE_S)
    return code, model


async def _listen(server: WebSocketServer, config: ServerConfig) -> list[str]:
    """Open every way in that is asked for; return them as clients write them."""
    files: list[str] = []
    if config.unix_socket is not None:
        files.append(await server.start_on_file(config.unix_socket))
    addresses: list[tuple[str, int]] = []
    if config.tcp:
        try:
            addresses = await server.start(config.host, config.port, read_tls(config))
        except OSError as error:
            await server.stop()
            raise ConfigError(
                f"--host {config.host} --port {config.port}: cannot listen there: "
                f"{error.strerror}; stop the other server, or choose another port (0 takes a free "
                "one)"
            ) from error
    if config.address_file is not None:
        host_and_port = [f"{host}:{port}" for host, port in addresses]
        write_address(config.address_file, (host_and_port + files)[0])
    is_tls = config.tls_cert is not None
    return [server_url(host, port, is_tls=is_tls) for host, port in addresses] + files


async def _tick(run: Run, guarded: Callable[[Callable[[], None]], None]) -> None:
    """Drive what is due by time, ten times a second."""
    while True:
        due = time.monotonic() + TICK_S
        await asyncio.sleep(TICK_S)
        run.trainer.loop_lagged(max(0.0, time.monotonic() - due))
        guarded(run.hub.tick)
        guarded(run.trainer.tick)


class _Alarm:
    """Wakes the hub when the scheduler wants to be asked again, at most one timer at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._timer: asyncio.Handle | None = None
        self._due = 0.0

    def set(self, at: float) -> None:
        """Wake at ``at`` (monotonic seconds) unless a timer is due before."""
        if self._timer is not None:
            if self._due <= at:
                return
            self._timer.cancel()
        # uvloop's handles do not always know when they are due.
        self._due = at
        self._timer = self._loop.call_later(max(0.0, at - time.monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()


def _report_write_failure(failure: WriteFailure) -> None:
    """The writer keeps the lines and tries again; a person should make room meanwhile."""
    logger.error(
        "%s cannot be written (%s); free some disk space, the lines are kept and tried again",
        failure.path,
        failure.error.strerror or failure.error,
    )
