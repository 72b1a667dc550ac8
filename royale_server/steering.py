"""What a person asks of a running server: by a letter in the control file, or through ``royale``.

Runs on the I/O thread. Answers every request; how a checkpoint is taken and how a run ends is the
trainer's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from royale_server.run.control import Letter
from royale_server.run.requests import ANSWERED, Request, Verb

logger = logging.getLogger(__name__)

Answer = Callable[[bool, str], None]
"""Takes whether what was asked for is done, or under way, and a sentence."""

_LETTERS = {Letter.CHECKPOINT: Verb.CHECKPOINT, Letter.QUIT: Verb.STOP, Letter.PAUSE: Verb.PAUSE}


class Steered(Protocol):
    """The run, as far as a person can steer it."""

    @property
    def is_ending(self) -> bool:
        """Whether its end was asked for already."""

    @property
    def is_paused(self) -> bool:
        """Whether a person has paused it."""

    def event(self, kind: str, message: str, **facts: object) -> None:
        """Write down what happened."""

    def checkpoint_now(self, done: Answer) -> None:
        """Take a checkpoint; ``done`` is told of its fate."""

    def quit(self, message: str) -> None:
        """End with a checkpoint."""

    def pause(self, done: Answer) -> None:
        """Come to rest; ``done`` is told at once whether it will."""

    def end_pause(self, *, ends_run: bool) -> None:
        """Go on, or stay at rest for the end."""


class Steering:
    """Obeys letters and requests.

    Args:
        run: What is steered.
    """

    def __init__(self, run: Steered) -> None:
        self._run = run

    def letter(self, letter: Letter) -> None:
        """Do what a letter asks for. Any letter ends a pause; a second p does nothing else."""
        self._run.event("control", f"{letter.name.lower()} asked for", letter=letter.value)
        logger.info("%s asked for through the control file", letter.name.lower())
        verb = _LETTERS[letter]
        if letter is Letter.PAUSE and self._run.is_paused:
            verb = Verb.CONTINUE
        self._obey(verb, f"{letter.name.lower()} asked for through the control file", _say)

    def request(self, request: Request) -> None:
        """Do what a request asks for, and answer it."""
        verb = request.verb
        logger.info("%s asked for through royale", verb.value)
        answer = partial(self._answer, request)
        if verb is Verb.PAUSE and self._run.is_paused:
            answer(True, "the run is paused already")
        elif verb is Verb.CONTINUE and not self._run.is_paused:
            answer(False, "the run is not paused")
        else:
            self._obey(verb, f"{verb.value} asked for through royale", answer)

    def _obey(self, verb: Verb, reason: str, answer: Answer) -> None:
        run = self._run
        if run.is_ending:
            answer(False, "the run is ending already")
            return
        if run.is_paused:
            logger.info("the pause is over")
            run.end_pause(ends_run=verb is Verb.STOP)
        match verb:
            case Verb.STOP:
                answer(True, "the run ends, with a checkpoint")
                run.quit(reason)
            case Verb.CHECKPOINT:
                run.checkpoint_now(answer)
            case Verb.PAUSE:
                run.pause(answer)
            case Verb.CONTINUE:
                answer(True, "the run goes on")

    def _answer(self, request: Request, done: bool, sentence: str) -> None:
        facts = {"request": request.id, "verb": request.verb.value, "ok": done}
        self._run.event(ANSWERED, sentence, **facts)


def _say(done: bool, sentence: str) -> None:
    """Answer a letter: only the log has room for it."""
    logger.log(logging.INFO if done else logging.WARNING, "%s", sentence)
