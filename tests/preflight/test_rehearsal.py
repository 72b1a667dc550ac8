"""The gradient step that does not count: it measures, and leaves no trace in the learner."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithms.base import Learner
from algorithms.policies.arena import ArenaPolicy
from algorithms.policies.config import ArenaPolicyConfig, MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.spaces import Spaces
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec
from royale_server.model.rehearsal import rehearse
from royale_server.model.slot_cost import slot_bytes

PLAIN = Spaces(
    observation=BoxSpec(-np.inf, np.inf, (4,), "float32"), action=DiscreteSpec(2), masks=False
)
BOARD = Spaces(
    observation=DictSpec(
        (
            ("planes", BoxSpec(0, 255, (18, 20, 12), "uint8")),
            ("vector", BoxSpec(0.0, 1.0, (5,), "float32")),
        )
    ),
    action=DiscreteSpec(961),
    masks=True,
)


def plain(**changes) -> PPO:
    config = PPOConfig(**{"frames_per_iteration": 100, "minibatch_size": 32, **changes})
    return PPO(config, MLPPolicy(MLPPolicyConfig(hidden_sizes=(8,)), PLAIN), seed=0)


@pytest.mark.parametrize(
    ("changes", "frames"),
    # 100 = 32 + 32 + 36: the last one takes the remainder. With a batch size, pieces are of 32.
    [({}, 36), ({"batch_size": 64}, 32), ({"minibatch_size": None, "num_minibatches": 3}, 34),
     ({"minibatch_size": 500}, 100)],
)  # fmt: skip
def test_the_largest_piece_of_an_iteration_is_rehearsed(changes, frames):
    learner = plain(**changes)
    assert learner.frames_at_once() == frames
    measured = rehearse(learner, PLAIN, None)
    assert measured is not None
    assert measured.frames == frames
    assert measured.failure is None
    assert measured.ratio_deviation is not None
    assert measured.ratio_deviation < 1e-5


def test_nothing_of_the_learner_or_of_any_generator_changes():
    learner = plain(scale_rewards=True)
    torch.manual_seed(3)
    before, generator = learner.state(), torch.get_rng_state()
    rehearse(learner, PLAIN, None)
    after = learner.state()
    assert after.counters == before.counters
    assert after.optimizer == before.optimizer == {}
    assert all(torch.equal(after.model[name], tensor) for name, tensor in before.model.items())
    assert all(parameter.grad is None for parameter in learner.policy.parameters())
    assert torch.equal(torch.get_rng_state(), generator)


def test_what_the_device_will_hold_is_counted():
    learner = plain()
    measured = rehearse(learner, PLAIN, None)
    assert measured is not None
    weights = sum(parameter.numel() for parameter in learner.policy.parameters())
    # Two moments of 4 bytes; a frame is 4 floats, an int64 action, and four float32 beside it.
    assert measured.held_bytes == 2 * 4 * weights + 100 * (16 + 8 + 4 * 4)


def test_the_board_is_rehearsed_with_its_masks_and_its_policy_knows_its_layout():
    config = ArenaPolicyConfig(channels=4, blocks=1, hidden_size=8, hand_start=1, hand_names=1)
    policy = ArenaPolicy(config, BOARD)
    algo = PPOConfig(frames_per_iteration=8, minibatch_size=8, forced_rows="critic_only")
    measured = rehearse(PPO(algo, policy, seed=0), BOARD, None)
    assert measured is not None
    assert measured.failure is None
    assert measured.ratio_deviation is not None
    assert measured.ratio_deviation < 1e-4
    layout = policy.action_layout()
    # 1 + slot * 240 + row * 12 + column
    assert layout[0].tolist() == [-1, -1, -1]
    slots, rows, columns = layout[1:].T
    np.testing.assert_array_equal(1 + slots * 240 + rows * 12 + columns, np.arange(1, 961))


def test_what_a_step_raises_is_what_was_found_out(monkeypatch):
    learner = plain()
    monkeypatch.setattr(learner._updater._terms, "of", lambda *_, **__: 1 / 0)
    measured = rehearse(learner, PLAIN, None)
    assert measured is not None
    assert measured.failure == "ZeroDivisionError: division by zero"


def test_an_algorithm_that_forgot_how_to_rehearse_is_told_what_to_define(monkeypatch):
    monkeypatch.setattr(PPO, "rehearse", Learner.rehearse)
    measured = rehearse(plain(), PLAIN, None)
    assert measured is not None
    assert measured.failure == (
        "UpdateError: algorithm 'ppo' has frames_at_once but no rehearse; define both, or neither "
        "if it takes no gradient steps"
    )


def test_a_slot_costs_its_observations_and_what_the_books_say_of_it():
    small = slot_bytes(PLAIN)
    # Two messages: 18 * 20 * 12 + 5 * 4 bytes of board and 121 of mask, in place of 4 * 4.
    board = slot_bytes(BOARD)
    assert small >= 2 * 16
    assert abs((board - small) - 2 * (4320 + 20 + 121 - 16)) < 256
