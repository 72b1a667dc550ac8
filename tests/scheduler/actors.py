"""Simulated clients: rows that act, end, fall silent, and the requests that tell of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from royale_server.scheduler import Group, Member, Request, Role
from tests.scheduler.books import Frame, Sent
from tests.scheduler.plans import Plan

NEW_EPISODE = 2
"""Observations of an episode are numbered one by one; a new episode skips a number."""

LEARNER, SNAPSHOT, SCRIPTED = 0, 7, -1
"""Who may play a row. A scripted bot lives in the client: its row does not ask."""


@dataclass(slots=True, eq=False)
class ClientGroup:
    client: Client
    index: int
    size: int
    chance: random.Random
    group: Group
    number: int = 0
    is_fresh: bool = True
    """Nothing was sent yet, or nothing since its episodes began anew after a restart."""
    is_open: list[bool] = field(default_factory=list)
    """Rows with an action that is still being carried out."""
    is_unknown: list[bool] = field(default_factory=list)
    """Rows whose open action this session's server knows nothing of."""
    is_resetting: list[bool] = field(default_factory=list)
    is_tainted: list[bool] = field(default_factory=list)
    seats: list[int] = field(default_factory=list)
    """Who plays each row's running episode."""
    frames: list[Frame | None] = field(default_factory=list)
    observations: list[int] = field(default_factory=list)
    owes_answer: bool = False
    is_done: bool = False


@dataclass(eq=False)
class Client:
    index: int
    sizes: tuple[int, ...]
    role: Role
    member: Member
    groups: list[ClientGroup] = field(default_factory=list)
    is_gone: bool = False
    is_leaving: bool = False
    is_absent: bool = False
    """Awaited since a restart, and not back yet."""
    hung_until: float = 0.0


def begin_afresh(cg: ClientGroup) -> None:
    """Its environments are reset, whatever they did before."""
    cg.is_fresh, cg.owes_answer = True, False
    cg.is_open = [False] * cg.size
    cg.is_unknown = [False] * cg.size
    cg.is_resetting = [False] * cg.size
    cg.is_tainted = [False] * cg.size
    cg.seats = [LEARNER] * cg.size
    cg.frames = [None] * cg.size


def next_request(cg: ClientGroup, plan: Plan) -> Request:
    """What the environments show after the last actions."""
    acted = list(cg.seats)
    if cg.is_fresh and not any(cg.is_open):
        for row in range(cg.size):
            _change_hands(cg, row, plan)
    rows = [_row(cg, row, plan) for row in range(cg.size)]
    asks = [a and seat != SCRIPTED for (a, _), seat in zip(rows, cg.seats, strict=True)]
    return _made(cg, plan, asks, [e for _, e in rows], acted)


def closing_request(cg: ClientGroup, plan: Plan) -> Request:
    """The last step before goodbye: every open row truncated, nobody asks."""
    return _made(cg, plan, [False] * cg.size, list(cg.is_open), cg.seats)


def _change_hands(cg: ClientGroup, row: int, plan: Plan) -> None:
    """Somebody plays the row's next episode; the learner always plays one row of a group."""
    if not plan.others or cg.client.role is Role.EVAL:
        return
    seat = cg.chance.choice((LEARNER, LEARNER, SNAPSHOT, SCRIPTED))
    is_needed = LEARNER not in (*cg.seats[:row], *cg.seats[row + 1 :])
    cg.seats[row] = LEARNER if is_needed else seat


def _row(cg: ClientGroup, row: int, plan: Plan) -> tuple[bool, bool]:
    """Whether the row would ask, and whether its episode ended."""
    asks, ended = _played(cg, row, plan)
    if ended:
        _change_hands(cg, row, plan)
    return asks, ended


def _played(cg: ClientGroup, row: int, plan: Plan) -> tuple[bool, bool]:
    chance = cg.chance
    if cg.is_resetting[row]:
        cg.is_resetting[row] = False
        return True, False
    is_scripted = cg.seats[row] == SCRIPTED and not cg.is_fresh
    if not (cg.is_open[row] or is_scripted):
        is_out = plan.mode == "turn" and cg.is_fresh and chance.random() < 0.3
        return not is_out, False
    ended = chance.random() < plan.end_probability
    if plan.mode == "next" and ended:
        cg.is_resetting[row] = True
        return False, True
    if plan.mode == "turn" and not ended:
        return chance.random() < 0.5, False
    return True, ended


def _made(
    cg: ClientGroup,
    plan: Plan,
    asks: list[bool],
    ended: list[bool],
    acted: list[int],
) -> Request:
    has_feedback = not cg.is_fresh or any(cg.is_open)
    bad_feedback, bad_observation = _nonfinite(cg, plan, asks)
    sent = Sent(cg.group.start, list(cg.frames), [], 0, 0, 0)
    for row in range(cg.size):
        if cg.is_open[row] and (asks[row] or ended[row]):
            sent.no_state += cg.is_unknown[row]
            is_without_cell = cg.frames[row] is None and not cg.is_unknown[row]
            sent.without_cell += is_without_cell and acted[row] == LEARNER
            sent.of_others += is_without_cell and acted[row] != LEARNER
            cg.is_open[row] = cg.is_unknown[row] = False
            cg.frames[row] = None
        if asks[row]:
            cg.observations[row] += NEW_EPISODE if ended[row] or cg.is_fresh else 1
        elif ended[row]:
            cg.observations[row] += 1
    sent.observations = list(cg.observations)
    cg.number += 1
    cg.is_fresh = False
    request = Request(
        number=cg.number,
        asks=np.array(asks),
        ended=np.array(ended),
        has_feedback=has_feedback,
        seats=np.array(cg.seats) if any(cg.seats) else None,
        payload=sent,
    )
    if any(bad_feedback) or any(bad_observation):
        request.invalid_feedback = np.array(bad_feedback)
        request.invalid_observation = np.array(bad_observation)
    return request


def _nonfinite(cg: ClientGroup, plan: Plan, asks: list[bool]) -> tuple[list[bool], list[bool]]:
    often = plan.invalid_probability
    feedback = [bool(often) and is_open and cg.chance.random() < often for is_open in cg.is_open]
    observation = [bool(often) and ask and cg.chance.random() < often for ask in asks]
    return feedback, observation
