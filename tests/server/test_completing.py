"""The step state of short batches is completed together, and never too late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from algorithms.base import Inference
from algorithms.storage import Array
from royale_server.model.keeping import COMPLETED_BATCHES, COMPLETED_ROWS
from tests.server.loop_world import LoopWorld, TablePolicy


class LatePolicy(TablePolicy):
    """Values observations when asked to complete, by what they hold by then."""

    def __init__(self, spaces) -> None:
        super().__init__(spaces)
        self.completed: list[int] = []

    def act(self, observations, masks, noise, deterministic=False) -> Inference:
        now = super().act(observations, masks, noise, deterministic)
        return Inference(
            now.actions,
            {"action": now.step_state["action"]},
            lambda: {"value": self.values(observations)},
        )

    def complete(self, inferences: Sequence[Inference]) -> dict[str, Array]:
        self.completed.append(len(inferences))
        return super().complete(inferences)


def late_world(rows: int, turns: int, policy=LatePolicy) -> tuple[LoopWorld, list[list[float]]]:
    """A world after one learn step, and the observations that were shown in it."""
    world = LoopWorld(target=rows * turns, policy=policy)
    client = world.client("c", groups=(rows,))
    shown = [[float(turn * rows + row) for row in range(rows)] for turn in range(turns + 1)]
    for observations in shown:
        client.step(obs=observations, rewards=[0.5] * rows)
    return world, shown


@pytest.mark.parametrize("rows", [1, 8, COMPLETED_ROWS, 2 * COMPLETED_ROWS])
def test_what_is_learnt_from_does_not_depend_on_when_step_state_is_completed(rows: int) -> None:
    turns = 40
    late, _ = late_world(rows, turns)
    at_once, _ = late_world(rows, turns, TablePolicy)
    assert late.learner.lessons == at_once.learner.lessons
    assert len(late.learner.lessons) == 1


@pytest.mark.parametrize(
    ("rows", "together"),
    [
        (1, COMPLETED_BATCHES),
        (64, COMPLETED_ROWS // 64),
        (COMPLETED_ROWS - 1, 2),
        (COMPLETED_ROWS, 1),
    ],
)
def test_short_batches_are_completed_together_up_to_a_bound(rows: int, together: int) -> None:
    turns = 40
    world, _ = late_world(rows, turns)
    policy = world.engine.policy
    assert isinstance(policy, LatePolicy)
    assert set(policy.completed[:-1]) == {together}
    # The learn step took the rest; the batch after it is under way unless it is long.
    assert sum(policy.completed) == turns + (rows >= COMPLETED_ROWS)


def test_the_value_of_a_cell_that_was_given_up_is_that_of_its_own_observation() -> None:
    """Its cell may be used again by the very batch that says what becomes of it."""
    lessons = []
    for policy in (LatePolicy, TablePolicy):
        world = LoopWorld(target=12, policy=policy)
        first, second = world.client("a"), world.client("b")
        for number in range(3):
            first.step(obs=[10.0 + number], rewards=[0.5])
            second.step(obs=[20.0 + number], rewards=[0.25])
        second.vanish()
        for number in range(20):
            first.step(obs=[30.0 + number], rewards=[0.5])
        lessons.append(world.learner.lessons)
    assert lessons[0]
    assert lessons[0] == lessons[1]


def test_a_policy_completes_batches_one_after_the_other_by_default() -> None:
    policy = LatePolicy.__new__(LatePolicy)
    policy.__dict__["completed"] = []
    parts = [
        Inference((), {"action": np.array([k, k])}, lambda k=k: {"value": np.array([k / 2, k])})
        for k in range(3)
    ]
    joined = policy.complete(parts)
    assert joined["action"].tolist() == [0, 0, 1, 1, 2, 2]
    assert joined["value"].tolist() == [0.0, 0.0, 0.5, 1.0, 1.0, 2.0]
