"""The scheduler core driven by hand: one call per event, readable commands back.

For scenarios that fit on a screen. Time moves only when told (`wait`), and then from one
``wake_at`` to the next, as in the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from royale_server.scheduler import (
    Answer,
    Command,
    Discard,
    Group,
    Infer,
    Learn,
    Member,
    Notice,
    Request,
    Role,
    Scheduler,
    SchedulerConfig,
)

WAKE_LATENESS_S = 1e-9

C = TypeVar("C")


def rows(text: str) -> np.ndarray:
    """``"101"`` as a mask."""
    return np.array([letter == "1" for letter in text])


class Desk:
    """One scheduler; ``log`` holds every command with the time it came.

    Args:
        target: Frames wanted in each iteration; None off-policy.
        answers: Whether batches are answered at once, without time passing.
        ring: Arguments of the off-policy ring.
        config: Settings of the scheduler.
    """

    def __init__(
        self,
        *,
        target: int | None = 1000,
        answers: bool = True,
        ring: dict[str, int] | None = None,
        **config: Any,
    ) -> None:
        self.now = 100.0
        self.log: list[tuple[float, Command]] = []
        self.scheduler = Scheduler(SchedulerConfig(**config), target=target, **(ring or {}))
        self.ledger = self.scheduler.ledger
        self._target = target
        self._answers = answers
        self.sent: list[tuple[str, Request]] = []
        """Every request with its client's name."""
        self._numbers: dict[Group, int] = {}

    # --- events -----------------------------------------------------------------------

    def join(self, name: str, *sizes: int, role: Role = Role.TRAIN) -> Member:
        member = self.scheduler.join(name, role, sizes, self.now)
        self.advance()
        return member

    def enter(self, name: str, *sizes: int, role: Role = Role.TRAIN) -> Member:
        """Join and send every group's first step."""
        member = self.join(name, *sizes, role=role)
        for group in member.groups:
            self.send(group)
        return member

    def send(
        self,
        group: Group,
        asks: str | None = None,
        ended: str | None = None,
        *,
        bad_reward: str | None = None,
        bad_observation: str | None = None,
        has_feedback: bool | None = None,
        seats: Sequence[int] | None = None,
    ) -> None:
        """A group's next request arrives; by default every row asks and none has ended."""
        number = self._numbers.get(group, 0) + 1
        self._numbers[group] = number
        request = Request(
            number=number,
            asks=rows(asks or "1" * group.size),
            ended=rows(ended or "0" * group.size),
            has_feedback=number > 1 if has_feedback is None else has_feedback,
            seats=None if seats is None else np.array(seats),
        )
        if bad_reward or bad_observation:
            request.invalid_feedback = rows(bad_reward or "0" * group.size)
            request.invalid_observation = rows(bad_observation or "0" * group.size)
        self.sent.append((group.member.name, request))
        self.scheduler.request(group, request, self.now)
        self.advance()

    def leave(self, member: Member) -> None:
        self.scheduler.leave(member, self.now)
        self.advance()

    def answer(self) -> None:
        """The batch in flight is done."""
        self.scheduler.inferred(self.now)
        self.advance()

    def learned(self, target: int | None = None) -> None:
        """The learn step is done."""
        version = self.ledger.version + 1
        target = self._target if target is None else target
        self.scheduler.learned(self.now, version=version, target=target)
        self.advance()

    def rest(self) -> None:
        self.scheduler.rest(self.now)
        self.advance()

    def resume(self) -> None:
        self.scheduler.resume(self.now)
        self.advance()

    def returned(self, member: Member) -> None:
        """The client of a member that was loaded is back, as it was."""
        for group in member.groups:
            self._numbers[group] = group.waiting.number if group.waiting else 0
        self.scheduler.returned(member, self.now)
        self.advance()

    def restart(self, member: Member) -> None:
        """It is back with fresh episodes."""
        self.scheduler.restart(member, self.now)
        self.advance()

    def wait(self, seconds: float) -> None:
        """Let time pass, waking the scheduler when it asked for it."""
        until = self.now + seconds
        while True:
            wake_at = self.scheduler.wake_at
            if wake_at is None or wake_at + WAKE_LATENESS_S > until:
                break
            self.now = max(self.now, wake_at) + WAKE_LATENESS_S
            self.advance()
        self.now = until

    def advance(self) -> None:
        commands = self.scheduler.advance(self.now)
        self.log += [(self.now, command) for command in commands]
        if self._answers and any(isinstance(command, Infer) for command in commands):
            self.answer()

    # --- what came of it ----------------------------------------------------------------

    def commands(self, kind: type[C]) -> list[C]:
        return [command for _, command in self.log if isinstance(command, kind)]

    def times(self, kind: type[Any], containing: str = "") -> list[float]:
        """When commands came, in seconds since the start."""
        return [
            round(at - 100.0, 6)
            for at, command in self.log
            if isinstance(command, kind) and containing in getattr(command, "message", "")
        ]

    @property
    def batches(self) -> list[list[str]]:
        """Every batch as the groups in it, ``name/index``."""
        return [[label(item.group) for item in b.items] for b in self.commands(Infer)]

    @property
    def silent_answers(self) -> list[str]:
        return [label(answer.group) for answer in self.commands(Answer)]

    @property
    def learns(self) -> list[list[int]]:
        """Cells of every learn step."""
        return [learn.cells.tolist() for learn in self.commands(Learn)]

    @property
    def notices(self) -> list[str]:
        return [notice.message for notice in self.commands(Notice)]

    def given_up(self, reason: Discard) -> int:
        return self.ledger.given_up[reason]

    def is_waiting(self, group: Group) -> bool:
        return group.waiting is not None


def label(group: Group) -> str:
    return f"{group.member.name}/{group.index}"


def effects_of(batches: Sequence[Infer | Learn], kind: type[C]) -> list[C]:
    """Effects of one kind that travelled with these commands."""
    return [e for batch in batches for e in batch.effects if isinstance(e, kind)]
