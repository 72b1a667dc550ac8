"""Several policies behind one batch: each infers its own rows, and the learner notices nothing."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from algorithms.errors import RestoreError
from algorithms.noise import slot_key
from algorithms.policies.config import MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.spaces import Spaces
from algorithms.storage import RolloutStorage
from royale_client.wire.messages import Step
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, leaves
from royale_server.model.engine import Engine
from royale_server.model.opponents import Opponents
from royale_server.scheduler import Learn, Request, Role, Scheduler, SchedulerConfig

SPACES = Spaces(
    observation=BoxSpec(-1.0, 1.0, (3,), np.float32), action=DiscreteSpec(5), masks=True
)
CONFIG = MLPPolicyConfig(hidden_sizes=(8,), normalize_observations=True)
SLOTS = 6
TARGET = 64


def make_policy(seed: int | None = None) -> MLPPolicy:
    if seed is not None:
        torch.manual_seed(seed)
    return MLPPolicy(CONFIG, SPACES)


def strange_policy(seed: int) -> MLPPolicy:
    """A policy that is sure of what it does, unlike a fresh one."""
    policy = make_policy(seed)
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.mul_(1000.0)
    policy.update_normalizers((np.full((4, 3), seed / 10, np.float32),))
    return policy


class Table:
    """One group of slots, an engine and its scheduler, on one thread."""

    def __init__(self, *snapshots: int) -> None:
        """Snapshots of policies with other weights, by number, play from the start."""
        policy = make_policy(seed=0)
        self.engine = Engine(
            policy,
            PPO(PPOConfig(frames_per_iteration=TARGET), policy, seed=0),
            RolloutStorage(TARGET + SLOTS, leaves(SPACES.observation), policy.step_state, 5),
            Opponents(make_policy),
        )
        for version in snapshots:
            self.engine.opponents.take(version, strange_policy(version))
            self.engine.opponents.seat(version)
        self.scheduler = Scheduler(SchedulerConfig(), target=TARGET)
        (self.group,) = self.scheduler.join("a", Role.TRAIN, (SLOTS,), 0.0).groups
        self.engine.add_slots(np.array([slot_key(0, "a", i) for i in range(SLOTS)], np.uint64))
        self.chance = np.random.default_rng(0)
        self.number = 0

    def play(self, seats: list[int] | None) -> list[int]:
        """One request in which every row asks; the actions it gets."""
        self.number += 1
        legal = self.chance.random((SLOTS, 5)) < 0.7
        legal[:, 0] = True
        step = Step(
            group=0,
            request=self.number,
            observations=(self.chance.uniform(-1, 1, (SLOTS, 3)).astype(np.float32),),
            masks=legal,
            rewards=None if self.number == 1 else np.zeros(SLOTS),
            terminated=None if self.number == 1 else np.zeros(SLOTS, np.bool_),
            truncated=None if self.number == 1 else np.zeros(SLOTS, np.bool_),
        )
        request = Request(
            number=self.number,
            asks=np.ones(SLOTS, np.bool_),
            ended=np.zeros(SLOTS, np.bool_),
            has_feedback=self.number > 1,
            seats=None if seats is None else np.array(seats),
            payload=step,
        )
        self.scheduler.request(self.group, request, 0.0)
        (batch,) = self.scheduler.advance(0.0)
        result = self.engine.infer(batch)
        self.scheduler.inferred(0.0)
        actions = result.actions[0][0]
        assert legal[np.arange(SLOTS), actions].all()
        return actions.tolist()

    def stored(self) -> dict[str, np.ndarray]:
        """Everything the learner will see."""
        return self.engine.snapshot(self.scheduler.ledger.complete_cells()).frames


def test_what_the_learner_does_and_stores_is_the_same_bytes_whoever_the_opponents_are() -> None:
    runs = []
    for first, second in ((3, 4), (5, 3)):
        table = Table(first, second)
        seats = [0, first, 0, second, second, 0]
        actions = [table.play(seats) for _ in range(8)]
        runs.append(([[row[i] for i in (0, 2, 5)] for row in actions], table.stored()))
        assert len(table.stored()["slots"]) == 3 * 7
    assert runs[0][0] == runs[1][0]
    assert runs[0][1].keys() == runs[1][1].keys()
    for name, rows in runs[0][1].items():
        assert rows.tobytes() == runs[1][1][name].tobytes(), name


def test_each_row_is_answered_by_its_own_policy_with_its_own_mask_and_noise() -> None:
    # The learner alone, a snapshot of another policy alone, and both in one batch.
    alone = [Table().play(None), Table(7).play([7] * SLOTS)]
    assert alone[0] != alone[1]
    mixed = Table(7).play([0, 7, 7, 0, 7, 0])
    assert mixed == [alone[seat == 7][i] for i, seat in enumerate([0, 7, 7, 0, 7, 0])]


def test_a_snapshot_of_the_learner_plays_as_the_learner_does_and_stays_as_it_was() -> None:
    table = Table()
    table.engine.opponents.take(1, table.engine.policy)
    table.engine.opponents.seat(1)
    expected = Table().play(None)
    with torch.no_grad():
        for parameter in table.engine.policy.parameters():
            parameter.mul_(-3.0)
    table.engine.policy.update_normalizers((np.ones((9, 3), np.float32),))
    assert table.play([1] * SLOTS) == expected


def test_making_an_opponent_draws_from_no_generator() -> None:
    table = Table()
    table.engine.opponents.take(1, table.engine.policy)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    table.engine.opponents.seat(1)
    assert torch.equal(torch.rand(3), expected)


def test_a_seat_that_became_free_is_taken_by_the_next_snapshot() -> None:
    made = []

    def make() -> MLPPolicy:
        made.append(make_policy())
        return made[-1]

    opponents = Opponents(make)
    for version in (1, 2, 3):
        opponents.take(version, make_policy(seed=version))
    opponents.seat(1)
    opponents.unseat(1)
    opponents.seat(2)
    assert len(made) == 1
    weights = make_policy(seed=2).state_dict()
    assert all(torch.equal(opponents.policy(2).state_dict()[n], w) for n, w in weights.items())
    opponents.forget([1])
    assert opponents.versions == (2, 3)


def test_snapshots_go_through_a_checkpoint() -> None:
    first, again = Opponents(make_policy), Opponents(make_policy)
    for version in (8, 12):
        first.take(version, make_policy(seed=version))
    again.load(first.tensors())
    assert again.versions == (8, 12)
    again.seat(12)
    wanted = make_policy(seed=12).tensors()
    found = again.policy(12).tensors()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_snapshot_of_another_shape_is_refused_by_name() -> None:
    wide = partial(MLPPolicy, MLPPolicyConfig(hidden_sizes=(9,), normalize_observations=True))
    opponents = Opponents(make_policy)
    opponents.take(1, wide(SPACES))
    with pytest.raises(RestoreError, match=r"actor\."):
        opponents.seat(1)


def test_learning_sees_the_learners_frames_alone() -> None:
    table = Table(3)
    while table.scheduler.is_open:
        table.play([0, 3, 3, 3, 3, 0])
    table.number += 1
    request = Request(
        number=table.number,
        asks=np.zeros(SLOTS, np.bool_),
        ended=np.ones(SLOTS, np.bool_),
        has_feedback=True,
        payload=Step(
            group=0,
            request=table.number,
            asks=np.zeros(SLOTS, np.bool_),
            observations=(np.zeros((0, 3), np.float32),),
            rewards=np.zeros(SLOTS),
            terminated=np.ones(SLOTS, np.bool_),
            truncated=np.zeros(SLOTS, np.bool_),
        ),
    )
    table.scheduler.request(table.group, request, 0.0)
    commands = table.scheduler.advance(0.0)
    (learn,) = [command for command in commands if isinstance(command, Learn)]
    assert len(learn.cells) == TARGET
    learned = table.engine.learn(
        learn,
        version=table.scheduler.ledger.version,
        may_have_gaps=False,
        returns=[],
        discards={},
        should_abort=lambda: False,
        progress=lambda *_: None,
    )
    assert learned.global_step == TARGET
    slots = table.engine.storage.copy_frames(learn.cells)["slots"]
    assert set(slots.tolist()) == {0, 5}
    ledger = table.scheduler.ledger
    assert ledger.others_total == 4 * TARGET // 2
    assert ledger.conservation_error == 0
