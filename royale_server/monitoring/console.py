"""Shows a run to the person who started it: lines for what happened, a bar for what is happening.

Silence always has a label: a collection that ends says that updating begins, and every epoch has a
line. Lines go through logging. When iterations take less than a second, one a second is shown
(besides the first ten and the last); the others are logged at debug level, and all are in
``metrics.jsonl``. Decides nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from royale_server.config import ServerConfig
from royale_server.monitoring import console_text
from royale_server.monitoring.console_text import Owed
from royale_server.monitoring.terminal import ProgressBar, Terminal
from royale_server.preflight import report
from royale_server.preflight.finding import Finding, Level
from royale_server.scheduler import Group
from royale_server.version import product_version

logger = logging.getLogger(__name__)

SHOWN_AT_FIRST = 10
"""Iterations of an attempt that are always shown."""
SHOWN_EVERY_S = 1.0
"""Later ones that learn sooner than this after the last one shown are not shown."""
DRAWN_EVERY_S = 0.1
"""The bar is not redrawn more often than this: drawing takes about a millisecond."""


class Console:
    """The console of one attempt. All methods are called from one thread.

    Args:
        terminal: Where a bar may be drawn; lines go through logging.
        arguments: What the server was started with; shown in the command that goes on.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        terminal: Terminal,
        *,
        arguments: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arguments = tuple(arguments)
        """What the server was started with."""
        self._bar: ProgressBar | None = terminal.new_bar()
        self._clock = clock
        self._run_directory: Path | None = None
        self._shown_at = float("-inf")
        self._drawn_at = float("-inf")
        self._learning_since = 0.0
        self._is_quiet = False
        self._num_collected = 0
        self._skipped = 0
        self._last_row: Mapping[str, float] = {}

    # --- start and clients ------------------------------------------------------------------

    def starting(self, config: ServerConfig, *, run_directory: Path, attempt: int) -> None:
        """Say what was asked for and where it is written."""
        self._run_directory = run_directory
        lines = console_text.start_lines(
            pair=str(config.pair),
            version=product_version(),
            run_directory=run_directory,
            attempt=attempt,
            seed=config.seed,
            device=config.device,
            dispatch=config.dispatch,
        )
        self._say(lines)

    def checked(self, findings: Sequence[Finding]) -> None:
        """Say what the preflight has found: what went well in one line, the rest one by one."""
        self._say([report.passed_line(findings)])
        for finding in findings:
            if finding.level is Level.WARN:
                logger.warning("%s", f"{finding.check}: " + " ".join(finding.lines()))

    def start_block(self, lines: Sequence[str]) -> None:
        """Say what the run is, once the first client has said what its environment is."""
        self._say(lines)

    def listening(self, urls: Sequence[str], *, clients_wanted: int) -> None:
        """Say where clients connect."""
        self._say(console_text.listening_lines(urls, clients_wanted))

    def built(self, *, device: str, frames_wanted: int | None) -> None:
        """Say that the model is there."""
        self._say([console_text.built_line(device, frames_wanted)])

    def client_joined(self, name: str, env_id: str, slots: int, address: str) -> None:
        """Say who came."""
        self._say([console_text.joined_line(name, env_id, slots, address)])

    def client_left(self, name: str, why: str) -> None:
        """Say who went, and why."""
        self._say([console_text.left_line(name, why)])

    def waiting_for_clients(self, missing: int) -> None:
        """Say how many clients are wanted before the first round."""
        self._say([console_text.waiting_line(missing)])

    def all_clients_gone(self, exit_when_idle: float | None) -> None:
        """Say that nobody is left, and what happens next."""
        self._hide_bar()
        self._say([console_text.all_gone_line(exit_when_idle)])

    def queue_waiting(
        self, groups: Iterable[Group], *, waited_s: float, now: float, missing_clients: int
    ) -> None:
        """Say who keeps inference waiting.

        Args:
            groups: Groups that owe a request.
            waited_s: Seconds since the last dispatch.
            now: Time on the scheduler's clock.
            missing_clients: Clients wanted before the first round.
        """
        owed = [_owed(group, now) for group in groups]
        self._say([console_text.queue_waiting_line(waited_s, owed, missing_clients)])

    # --- iterations -------------------------------------------------------------------------

    def collecting(self, stored: int, target: int) -> None:
        """Move the bar while frames come in; nothing without a terminal."""
        self._move_bar("collecting", min(stored, target), target)

    def collected(self, frames: int, collect_s: float) -> None:
        """Say that a collection ended and the learn step begins."""
        now = self._clock()
        self._learning_since = now
        self._num_collected += 1
        is_soon = now - self._shown_at < SHOWN_EVERY_S
        self._is_quiet = is_soon and self._num_collected > SHOWN_AT_FIRST
        if not self._is_quiet:
            self._shown_at = now
        self._say([console_text.collected_line(frames, collect_s)], quiet=self._is_quiet)

    def epoch(self, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        """Say that a pass of the learn step is done."""
        learning_s = self._clock() - self._learning_since
        line = console_text.epoch_line(epoch, epochs, learning_s, metrics)
        self._say([line], quiet=self._is_quiet and learning_s < SHOWN_EVERY_S)
        self._move_bar("updating", epoch, epochs)

    def iteration(self, row: Mapping[str, float]) -> None:
        """Show the numbers of an iteration.

        Args:
            row: Its row of ``metrics.jsonl``.
        """
        self._last_row = row
        if self._is_quiet and self._clock() - self._learning_since < SHOWN_EVERY_S:
            self._say(console_text.iteration_lines(row), quiet=True)
            self._skipped += 1
        else:
            self._say(console_text.iteration_lines(row, self._skipped))
            self._skipped = 0

    # --- saving and ending --------------------------------------------------------------------

    def checkpoint_saved(self, step: int, path: Path) -> None:
        """Say that a checkpoint is on disk."""
        self._say([console_text.saved_line(step, path)])

    def stopping(self, message: str, *, learning: bool) -> None:
        """Say that a stop was asked for, and what is waited for."""
        self._hide_bar()
        self._say([console_text.stopping_line(message, learning=learning)])

    def ended(
        self, message: str, *, code: int, saved_step: int | None, step: int, is_finished: bool
    ) -> None:
        """Say how the run ended and how to go on."""
        self._hide_bar()
        if self._skipped:
            self._say(console_text.iteration_lines(self._last_row, self._skipped - 1))
        lines = console_text.ended_lines(
            message,
            code=int(code),
            step=step,
            saved_step=saved_step,
            run_directory=self._run_directory,
            last_return=console_text.return_text(self._last_row),
            is_finished=is_finished,
            arguments=self.arguments,
        )
        self._say(lines)

    def close(self) -> None:
        """Leave the terminal as it was found."""
        self._hide_bar()

    def _move_bar(self, description: str, done: int, total: int) -> None:
        if self._bar is None:
            return
        now = self._clock()
        if now - self._drawn_at >= DRAWN_EVERY_S:
            self._drawn_at = now
            self._bar.show(description, done, total)

    def _hide_bar(self) -> None:
        if self._bar is not None:
            self._bar.hide()

    @staticmethod
    def _say(lines: Iterable[str], *, quiet: bool = False) -> None:
        level = logging.DEBUG if quiet else logging.INFO
        for line in lines:
            logger.log(level, "%s", line)


def _owed(group: Group, now: float) -> Owed:
    """What a group owes, in the words of the console."""
    since = group.owes_since if group.owes_since is not None else group.member.joined_at
    return Owed(
        client=group.member.name,
        group=group.index,
        is_first=not group.entered,
        for_s=max(0.0, now - since),
    )
