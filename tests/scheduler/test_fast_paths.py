"""What is kept of whole groups alike, and what is kept of each row, are the same books."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from royale_server.scheduler import (
    Answer,
    Bootstrap,
    Bridge,
    Command,
    Effect,
    FrameLedger,
    Infer,
    Learn,
    Record,
    Rested,
    Scheduler,
    SchedulerState,
    Span,
)
from royale_server.scheduler.quorum import TURNS_TO_CHANGE, Quorum
from tests.scheduler.plans import calm_plan, deterministic_plan, random_plan
from tests.scheduler.world import World

PLANS = {"random": random_plan, "calm": calm_plan, "deterministic": deterministic_plan}
SEEDS = 25


def by_row(
    self: FrameLedger, spans: Sequence[Span], slots: np.ndarray
) -> tuple[np.ndarray, np.ndarray, None]:
    for span in spans:
        self.settle(span)
    return *self.reserve(slots), None


class Noted(Scheduler):
    """Notes everything it tells the rest of the server, as plain values."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.notes: list[object] = []

    def advance(self, now: float) -> list[Command]:
        commands = super().advance(now)
        self.notes += [(round(now, 9), plain(command)) for command in commands]
        ledger = self.ledger
        self.notes.append((ledger.num_reserved, ledger.num_complete, ledger.env_steps_total))
        return commands

    def state(self) -> SchedulerState:
        state = super().state()
        books = state.books
        arrays = (books.cells, books.cell_slots, books.tails, books.ordinals, books.answered)
        numbering = (books.episode_frames, state.tainted, state.episodes, state.steps)
        self.notes.append([array.tolist() for array in (*arrays, *numbering)])
        return state


def plain(command: Command) -> object:
    match command:
        case Infer():
            arrays = (command.slots, command.episodes, command.steps, command.cells)
            items = [
                (item.group.start, item.request.number, item.rows.tolist(), item.learner.tolist())
                for item in command.items
            ]
            more = (command.cell_slots, command.ordinals)
            return items, [a.tolist() for a in (*arrays, *more)], effects(command.effects)
        case Learn():
            return command.cells.tolist(), effects(command.effects)
        case Rested():
            return effects(command.effects)
        case Answer():
            return command.group.start, command.request.number
    return str(command.message)


def effects(noted: Sequence[Effect]) -> list[object]:
    def one(effect: Effect) -> tuple[object, ...]:
        match effect:
            case Record():
                return effect.request.number, effect.cells.tolist(), effect.finished.tolist()
            case Bridge():
                return effect.cells.tolist(), effect.successors.tolist()
            case Bootstrap():
                return effect.request.number, effect.rows.tolist(), effect.cells.tolist()

    return [one(effect) for effect in noted]


@pytest.mark.parametrize("kind", PLANS)
def test_a_run_is_the_same_whether_whole_groups_are_kept_alike_or_by_row(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def notes(seed: int) -> list[object]:
        schedulers: list[Noted] = []

        def make(*args: Any, **kwargs: Any) -> Noted:
            schedulers.append(Noted(*args, **kwargs))
            return schedulers[-1]

        world = World(PLANS[kind](seed), seed=seed, make_scheduler=make).run()
        assert not world.faults
        return [note for scheduler in schedulers for note in scheduler.notes]

    alike = [notes(seed) for seed in range(SEEDS)]
    monkeypatch.setattr(FrameLedger, "reserve_spans", by_row)
    assert alike == [notes(seed) for seed in range(SEEDS)]


def test_the_life_of_whole_spans_is_the_same_alike_and_by_row() -> None:
    """Whatever happens in between: silent rows, giving up, ends, looks at the arrays."""
    for seed in range(40):
        draw = random.Random(seed)
        alike, rows = FrameLedger(capacity=600), FrameLedger(capacity=600)
        spans = {ledger: [Span(0, 3), Span(3, 4), Span(4, 9)] for ledger in (alike, rows)}
        for ledger in (alike, rows):
            ledger.add_slots(9)
        for _ in range(30):
            k = draw.randrange(3)
            size = spans[alike][k].size
            if draw.random() < 0.3:
                alike.open_rows(spans[alike][k])  # a look changes nothing
            ended = np.array([draw.random() < 0.3 for _ in range(size)])
            asks = np.array([draw.random() < 0.9 for _ in range(size)])
            act = draw.choice(("turn", "turn", "turn", "give up", "frames", "tails", "learn"))
            got = [
                one_turn(ledger, spans[ledger][k], act, asks, ended, whole=ledger is alike)
                for ledger in (alike, rows)
            ]
            assert got[0] == got[1], (seed, act)
            assert alike.conservation_error == rows.conservation_error == 0


def one_turn(
    ledger: FrameLedger, span: Span, act: str, asks: np.ndarray, ended: np.ndarray, *, whole: bool
) -> object:
    slots = np.arange(span.start, span.stop)
    if act == "turn":
        reserve = FrameLedger.reserve_spans if whole else by_row
        receive_all(ledger, span, np.ones_like(asks), np.zeros_like(ended))
        cells, ordinals = as_range(*reserve(ledger, [span], slots))
        done = receive_all(ledger, span, np.ones_like(asks), ended)
        more = as_range(*reserve(ledger, [span], slots))
        if not asks.all():
            done += receive_all(ledger, span, asks, ended)
        return cells.tolist(), ordinals.tolist(), done, [a.tolist() for a in more]
    if act == "give up":
        cells = ledger.open_cells(span)
        return [a.tolist() for a in ledger.give_up(cells, next(iter(ledger.given_up)))]
    if act == "frames":
        return ledger.take_episode_frames(span, ended.nonzero()[0]).tolist()
    if act == "tails":
        return [a.tolist() for a in ledger.unfinished_tails(span, asks)]
    if not ledger.num_reserved:
        cells = ledger.complete_cells().tolist()
        ledger.forget_tails(slice(None))
        ledger.start_version(ledger.version + 1)
        return cells
    return None


def as_range(
    cells: np.ndarray, ordinals: np.ndarray, block: slice | None
) -> tuple[np.ndarray, np.ndarray]:
    assert block is None or cells.tolist() == list(range(block.start, block.stop))
    return cells, ordinals


def receive_all(ledger: FrameLedger, span: Span, asks: np.ndarray, ended: np.ndarray) -> list[Any]:
    if span.block is not None and asks.all():
        cells, block = ledger.receive_block(span, ended if ended.any() else None)
        assert cells.tolist() == list(range(block.start, block.stop))
        return cells.tolist()
    rows, cells, finished = ledger.receive(span, asks, ended, has_feedback=True)
    return cells.tolist() if finished.all() else [rows.tolist(), cells.tolist()]


def test_turns_below_the_floor_are_judged_as_those_that_need_the_median() -> None:
    draw = random.Random(2)
    for floor_s in (0.0, 0.02, 0.3):
        quorum: Quorum[str] = Quorum(patience=2.0, floor_s=floor_s)
        groups = {"a/0": "a", "a/1": "a", "b/0": "b", "c/0": "c"}
        for group, session in groups.items():
            quorum.enter(group, session)
        members, streaks = dict.fromkeys(groups, True), dict.fromkeys(groups, 0)
        for _ in range(400):
            group, turn_s = draw.choice(list(groups)), draw.choice((0.01, 0.05, 0.2, 0.5, 1.5))
            is_late = turn_s > quorum.patience_s(group)
            streaks[group] = streaks[group] + 1 if is_late == members[group] else 0
            expected = None
            if streaks[group] == TURNS_TO_CHANGE:
                streaks[group], members[group] = 0, not is_late
                expected = members[group]
            assert quorum.turn_ended(group, turn_s) is expected
            assert quorum.on_time == {one for one in groups if members[one]}
