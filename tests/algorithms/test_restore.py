"""Continuing from saved tensors: exactly, in part, or not at all."""

import json
import logging

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from algorithms.base import LearnerState
from algorithms.errors import RestoreError
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.restore import (
    RestorePlan,
    name_filter,
    optimizer_structure,
    optimizer_tensors,
    plan_optimizer,
    set_optimizer_state,
)
from royale_client.wire.spaces import BoxSpec
from tests.algorithms.rollouts import (
    collect,
    is_equal,
    is_same_state,
    learn,
    make_policy,
    weights,
)

CONTINUOUS = BoxSpec(-1.0, 1.0, (2,), "float32")


def make_learner(seed=0, hidden_sizes=(8,), normalize_observations=True, **settings):
    policy = make_policy(
        CONTINUOUS,
        seed=seed,
        hidden_sizes=hidden_sizes,
        normalize_observations=normalize_observations,
    )
    config = {"num_epochs": 2, "minibatch_size": 8, "total_timesteps": 320, "scale_rewards": True}
    return PPO(PPOConfig(**(config | settings)), policy, seed=3)


def train(learner, first, last):
    return [learn(learner, *collect(learner.policy, iteration=i)) for i in range(first, last)]


def through_files(state):
    """What is left of a state after files were written and read: bytes and JSON text."""
    return LearnerState(
        model=load(save(state.model)),
        optimizer=load(save(state.optimizer)),
        counters=json.loads(json.dumps(state.counters, allow_nan=False)),
    )


@pytest.mark.parametrize("fused", [False, True])
def test_adam_continues_as_if_never_interrupted(fused):
    # Case H11. Weights alone would give [0.71969599, -2.16338944], moments without the step
    # count [0.69823331, -2.04653478].
    def make():
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        return weight, torch.optim.Adam([weight], lr=0.1, fused=fused), {weight: "w"}

    def step(weight, optimizer, gradient):
        weight.grad = torch.tensor(gradient)
        optimizer.step()

    weight, optimizer, names = make()
    step(weight, optimizer, [1.0, 0.5])
    step(weight, optimizer, [0.2, -1.0])
    assert weight.tolist() == pytest.approx([0.81969595, -2.06338954], abs=1e-6)
    tensors = load(save(optimizer_tensors(optimizer, names)))
    structure = json.loads(json.dumps(optimizer_structure(optimizer, names)))
    assert tensors["w/exp_avg"].tolist() == pytest.approx([0.11, -0.055], abs=1e-7)
    assert tensors["w/exp_avg_sq"].tolist() == pytest.approx([0.001039, 0.00124975], abs=1e-8)
    assert tensors["w/step"].item() == 2

    resumed, other, other_names = make()
    with torch.no_grad():
        resumed.copy_(weight)
    plan = RestorePlan("all")
    state = plan_optimizer(plan, other, other_names, tensors, structure)
    plan.raise_problems()
    set_optimizer_state(other, state)
    step(weight, optimizer, [0.3, 0.3])
    step(resumed, other, [0.3, 0.3])
    assert resumed.tolist() == pytest.approx([0.74210399, -2.05262232], abs=1e-6)
    assert torch.equal(resumed, weight)
    assert isinstance(other.param_groups[0]["lr"], float)


def test_resumed_run_equals_an_uninterrupted_one_to_the_last_bit():
    whole = make_learner()
    rows = train(whole, 0, 6)
    first = make_learner()
    train(first, 0, 3)
    second = make_learner(seed=9)
    second.load_state(through_files(first.state()))
    assert is_same_state(first.state(), second.state())
    assert train(second, 3, 6) == rows[3:]
    assert is_same_state(whole.state(), second.state())


def test_state_before_the_first_learn_step_is_restored_too():
    fresh, other = make_learner(), make_learner(seed=1)
    other.load_state(through_files(fresh.state()))
    assert is_same_state(fresh.state(), other.state())
    assert train(other, 0, 2) == train(fresh, 0, 2)


def test_state_is_a_copy():
    learner = make_learner()
    train(learner, 0, 1)
    state = learner.state()
    kept = through_files(state)
    train(learner, 1, 2)
    assert is_same_state(state, kept)


def test_recent_returns_and_frozen_counts_travel_with_the_counters():
    learner = make_learner(stop_at_return=5.0, stop_window=2)
    learner.episodes_finished(np.array([4.0, 6.25]))
    other = make_learner(stop_at_return=5.0, stop_window=2)
    other.load_state(through_files(learner.state()))
    assert other.finished() == "mean return of the last 2 episodes is 5.1, the goal was 5.0"


def test_model_mode_takes_weights_and_statistics_and_starts_the_rest_afresh():
    # Case H18: a source at its end must not end the new run.
    source = make_learner(total_timesteps=64)
    train(source, 0, 2)
    assert source.finished() is not None
    learner = make_learner(seed=5, total_timesteps=64)
    learner.load_state(through_files(source.state()), "model")
    assert is_equal(weights(learner), weights(source))
    assert (learner.policy_version, learner.global_step) == (0, 0)
    assert learner.finished() is None
    state, origin = learner.state(), source.state()
    assert state.optimizer == {}
    for name in ("observation_normalizer.0/count", "return_normalizer.var"):
        assert torch.equal(state.model[name], origin.model[name])
    assert state.model["return_normalizer.slots"].numel() == 0  # those are the source's slots
    assert train(learner, 0, 1)[0]["ppo/learning_rate"] == 3e-4


def test_except_critic_keeps_the_fresh_critic():
    source = make_learner()
    train(source, 0, 2)
    learner = make_learner(seed=5)
    before = weights(learner)
    learner.load_state(through_files(source.state()), "except-critic")
    after, taken = weights(learner), weights(source)
    for name in before:
        expected = before if name.startswith("critic.") else taken
        assert torch.equal(after[name], expected[name])
    assert learner.policy.normalizer_state()["0/count"].tolist() == [64, 64, 64]


def test_other_critic_is_no_obstacle_to_except_critic():
    source = make_learner()
    learner = make_learner(hidden_sizes=(8,))
    source.policy.critic[0].weight.data = torch.zeros(1)
    learner.load_state(source.state(), "except-critic")


@pytest.mark.parametrize(
    ("restore", "taken"),
    [
        ("model", ["actor.0.weight", "head.log_std", "critic.0.bias"]),
        ("except-critic", ["actor.0.weight", "head.log_std"]),
        ("except-*.bias", ["actor.0.weight", "head.log_std"]),
        ("actor", ["actor.0.weight"]),
        ("actor.*", ["actor.0.weight"]),
        ("*.0.*", ["actor.0.weight", "critic.0.bias"]),
    ],
)
def test_patterns_choose_by_name(restore, taken):
    names = ["actor.0.weight", "head.log_std", "critic.0.bias"]
    assert [name for name in names if name_filter(restore)(name)] == taken


def test_pattern_that_takes_nothing_is_refused_with_the_names_there_are():
    learner = make_learner()
    with pytest.raises(
        RestoreError, match=r"encoder takes none of the weights: .*actor\.0\.weight"
    ):
        learner.load_state(learner.state(), "encoder")


def test_every_tensor_that_does_not_fit_is_named_in_one_error_and_nothing_changes():
    source = make_learner()
    train(source, 0, 1)
    state = source.state()
    del state.model["actor.0.bias"]
    state.model["actor.7.bias"] = torch.zeros(2)
    state.model["critic.0.weight"] = torch.zeros(8, 4)
    state.model["head.log_std"] = state.model["head.log_std"].double()
    del state.optimizer["head.log_std/exp_avg"]
    state.optimizer["actor.0.weight/exp_avg_sq"] = torch.zeros(1)
    learner = make_learner(seed=5)
    before = learner.state()
    with pytest.raises(RestoreError) as caught:
        learner.load_state(state)
    error = caught.value
    assert error.missing == ("actor.0.bias", "optimizer head.log_std/exp_avg")
    assert error.unexpected == ("actor.7.bias",)
    assert error.reshaped == (
        "critic.0.weight: got float32 (8, 4), expected float32 (8, 3)",
        "head.log_std: got float64 (2,), expected float32 (2,)",
        "optimizer actor.0.weight/exp_avg_sq: got float32 (1,), expected float32 (8, 3)",
    )
    for name in ("missing: actor.0.bias", "unexpected: actor.7.bias", "reshaped: critic.0.weight"):
        assert name in str(error)
    assert is_same_state(before, learner.state())


@pytest.mark.parametrize("restore", ["all", "model", "except-critic"])
def test_statistics_that_only_one_side_has_are_named(restore):
    normalised, plain = make_learner(), make_learner(normalize_observations=False)
    with pytest.raises(RestoreError) as caught:
        plain.load_state(normalised.state(), restore)
    assert "observation_normalizer.0/mean" in caught.value.unexpected
    with pytest.raises(RestoreError) as caught:
        normalised.load_state(plain.state(), restore)
    assert "observation_normalizer.0/mean" in caught.value.missing


def test_reward_statistics_start_fresh_where_a_warm_start_brings_none(caplog):
    source, learner = make_learner(scale_rewards=False), make_learner()
    with caplog.at_level(logging.INFO):
        learner.load_state(source.state(), "model")
    assert "no reward statistics" in caplog.text
    with pytest.raises(RestoreError) as caught:
        learner.load_state(source.state())
    assert "return_normalizer.mean" in caught.value.missing


def test_statistics_with_impossible_numbers_are_refused():
    learner = make_learner()
    before = learner.state()
    for name in ("observation_normalizer.0/var", "return_normalizer.var"):
        state = learner.state()
        state.model[name] = -torch.ones_like(state.model[name])
        with pytest.raises(RestoreError, match="cannot be"):
            learner.load_state(state)
    assert is_same_state(before, learner.state())


def test_counters_of_another_algorithm_are_not_continued():
    learner = make_learner()
    state = learner.state()
    state.counters["algorithm"] = "fpo"
    with pytest.raises(RestoreError, match=r"written by algorithm 'fpo'.*--algo.restore model"):
        learner.load_state(state)
    learner.load_state(state, "model")
