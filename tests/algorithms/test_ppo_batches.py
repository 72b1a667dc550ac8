"""Gradient steps in pieces, and optimizers apart: the same mathematics in less memory."""

import numpy as np
import pytest
import torch

from algorithms.errors import UpdateError
from algorithms.ppo.batch import TrainingBatch, has_choice, make_batch, make_targets
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.ppo.metrics import StepLog
from algorithms.ppo.plan import UpdatePlan
from algorithms.ppo.terms import pieces
from algorithms.ppo.update import Updater
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, MultiDiscreteSpec
from tests.algorithms.rollouts import (
    collect,
    is_equal,
    is_same_state,
    learn,
    make_policy,
    weights,
)

MASKED = {"action": DiscreteSpec(4), "masks": True}


def make_learner(policy=None, seed=0, **settings):
    policy = make_policy() if policy is None else policy
    config = {"num_epochs": 1, "minibatch_size": 8, "total_timesteps": 1000, **settings}
    return PPO(PPOConfig(**config), policy, seed=seed)


def collect_forced(policy, forced, iteration=0, **rest):
    """Frames of which some leave nothing to choose but action 0."""
    storage, cells = collect(policy, iteration=iteration, **rest)
    masks = storage.read_masks(cells)
    masks[:, :2] = True
    masks[forced] = False
    masks[forced, 0] = True
    storage.write_masks(cells, masks)
    stored = storage.step_state
    stored["action"][forced] = 0
    stored["log_prob"][forced] = 0.0
    free = np.setdiff1d(cells, forced)
    with torch.no_grad():
        observations = policy.prepare(tuple(leaf[free] for leaf in storage.observations))
        distribution = policy.distribution(observations, torch.from_numpy(masks[free]))
        actions = distribution.mode()
        stored["action"][free] = actions.numpy()
        stored["log_prob"][free] = distribution.log_prob(actions).numpy()
    return storage, cells


def gradients(policy, storage, cells, size, **settings):
    """The gradient of one step over all frames, in pieces of a size, and the step's numbers."""
    config = PPOConfig(batch_size=len(cells), minibatch_size=size, **settings)
    targets = make_targets(storage, cells, normalizer=None, gamma=0.99, gae_lambda=0.95)
    batch = make_batch(storage, targets, policy)
    updater = Updater(config, policy)
    plan = UpdatePlan(
        seed=(0, 0),
        learning_rate=0.0,
        critic_learning_rate=0.0,
        ent_coef=0.1,
        noop_ent_coef=0.2,
        gamma=0.99,
        is_actor_frozen=False,
    )
    numbers = updater._accumulate(batch, torch.arange(len(batch)), plan, StepLog())
    found = {name: p.grad.clone() for name, p in policy.named_parameters()}
    return found, {key: number.item() for key, number in numbers.items()}


@pytest.mark.parametrize("forced_rows", ["all", "critic_only"])
@pytest.mark.parametrize("size", [1, 5, 8, 31])
def test_accumulated_gradient_equals_that_of_the_whole_batch(size, forced_rows):
    policy = make_policy(**MASKED)
    storage, cells = collect_forced(policy, forced=np.array([0, 1, 2, 3, 4, 9, 20]))
    settings = {
        "forced_rows": forced_rows,
        "noop_ent_coef": 0.2,
        "dual_clip": 3.0,
        "value_clip": 0.1,
    }
    with torch.no_grad():  # away from where the frames were collected: ratios are not 1
        policy.actor[-1].bias += torch.tensor([0.5, -0.5, 0.2, 0.0])
    whole, numbers = gradients(policy, storage, cells, 32, **settings)
    policy.zero_grad()
    parts, sums = gradients(policy, storage, cells, size, **settings)
    for name, gradient in whole.items():
        assert torch.allclose(parts[name], gradient, rtol=1e-4, atol=1e-6), name
    assert sums == pytest.approx(numbers, rel=1e-4, abs=1e-6)


def test_weights_do_not_depend_on_the_size_of_the_pieces():
    def run(size):
        learner = make_learner(batch_size=16, minibatch_size=size, num_epochs=3)
        metrics = [learn(learner, *collect(learner.policy, iteration=i)) for i in range(2)]
        assert [row["ppo/gradient_steps"] for row in metrics] == [6, 6]  # 3 * 32 / 16
        return weights(learner)

    whole, parts = run(16), run(3)
    for name, tensor in whole.items():
        assert torch.allclose(parts[name], tensor, atol=1e-5), name


def test_batch_in_one_piece_is_a_minibatch_to_the_last_bit():
    def run(**settings):
        learner = make_learner(num_epochs=2, **settings)
        rows = [learn(learner, *collect(learner.policy, iteration=i)) for i in range(2)]
        return learner.state(), rows

    plain, batched = run(minibatch_size=16), run(batch_size=16, minibatch_size=16)
    assert is_same_state(plain[0], batched[0])
    assert plain[1] == batched[1]


def test_remainder_of_a_pass_is_learnt_from():
    # 30 usable frames in steps of 12: 12 and 18. The larger one is cut into pieces of 5, 5, 5, 3.
    policy = make_policy()
    storage, cells = collect(policy)
    storage.rewards[5] = np.nan
    storage.bootstrap[28] = np.nan
    learner = make_learner(policy, batch_size=12, minibatch_size=5)
    sizes = []
    judge = policy.evaluate_values
    policy.evaluate_values = lambda observations: (
        sizes.append(len(observations[0])) or judge(observations)
    )
    metrics = learn(learner, storage, cells)
    assert metrics["ppo/gradient_steps"] == 2
    assert sizes == [5, 5, 2, 5, 5, 5, 3]


def test_shares_of_the_pieces_are_true_counts():
    # Ten frames, choices in 1, 2, 3 and 8; pieces of 4, 4 and 2: of all 0.4, 0.4, 0.2; of the
    # choices 3/4, 0 and 1/4.
    is_choice = torch.zeros(10, dtype=torch.bool)
    is_choice[[1, 2, 3, 8]] = True
    column = torch.arange(10.0)
    batch = TrainingBatch(
        observations=(column,),
        masks=None,
        is_choice=is_choice,
        actions=column,
        log_probs=column,
        values=column,
        advantages=column,
        returns=column,
    )
    config = PPOConfig(
        forced_rows="critic_only", noop_ent_coef=0.1, minibatch_size=4, batch_size=10
    )
    found = list(pieces(batch, torch.arange(10), 4, config))
    assert [piece.shares.frames for piece in found] == pytest.approx([0.4, 0.4, 0.2])
    assert [piece.shares.actor for piece in found] == [0.75, 0.0, 0.25]
    assert [piece.shares.choices for piece in found] == [0.75, 0.0, 0.25]
    assert [piece.actor_rows.tolist() for piece in found] == [[1, 2, 3], [], [0]]
    # Advantages 1, 2, 3, 8 of the actor: mean 3.5, sample variance (6.25 + 2.25 + 0.25 + 20.25)
    # / 3 = 9.6667, deviation 3.10913.
    scaled = torch.cat([piece.advantages[piece.actor_rows] for piece in found])
    assert scaled.tolist() == pytest.approx([-0.80408, -0.48245, -0.16082, 1.44735], abs=1e-4)


@pytest.mark.parametrize(
    ("action", "mask", "expected"),
    [
        (DiscreteSpec(3), [True, False, False], False),
        (DiscreteSpec(3), [False, True, True], True),
        (MultiDiscreteSpec((2, 3)), [True, False, False, True, False], False),
        (MultiDiscreteSpec((2, 3)), [True, True, False, True, False], True),
    ],
)
def test_choice_is_more_than_one_joint_action(action, mask, expected):
    assert has_choice(action, np.array([mask])).tolist() == [expected]


def test_two_optimizers_take_the_steps_of_two_adams():
    # One step over everything, against two Adams fed with the same gradients.
    policy, twin = make_policy(), make_policy()
    storage, cells = collect(policy)
    found, _ = gradients(twin, storage, cells, 32)
    learner = make_learner(
        policy,
        separate_optimizers=True,
        batch_size=32,
        minibatch_size=32,
        learning_rate=1e-2,
        critic_learning_rate=3e-3,
        max_grad_norm=0.05,
        ent_coef=0.1,
    )
    metrics = learn(learner, storage, cells)
    norms = {}
    for part, rate in (("actor", 1e-2), ("critic", 3e-3)):
        own = {n: p for n, p in twin.named_parameters() if n.startswith(part)}
        adam = torch.optim.Adam(own.values(), lr=rate, eps=1e-5, fused=True)
        for name, parameter in own.items():
            parameter.grad = found[name]
        norms[part] = torch.nn.utils.clip_grad_norm_(own.values(), 0.05).item()
        adam.step()
    for name, tensor in twin.state_dict().items():
        assert torch.allclose(learner.policy.state_dict()[name], tensor, atol=1e-6), name
    assert metrics["ppo/grad_norm_actor"] == pytest.approx(norms["actor"], rel=1e-4)
    assert metrics["ppo/grad_norm_critic"] == pytest.approx(norms["critic"], rel=1e-4)
    whole = np.hypot(norms["actor"], norms["critic"])
    assert metrics["ppo/grad_norm"] == pytest.approx(whole, rel=1e-4)


def test_large_gradient_of_the_critic_does_not_shrink_that_of_the_actor():
    # Adam's first moment is a tenth of the gradient as it was bounded. Rewards of 1000 make the
    # critic's norm thousands; bounded together the actor's part would be next to nothing.
    learner = make_learner(
        separate_optimizers=True, batch_size=32, minibatch_size=32, max_grad_norm=0.01
    )
    learn(learner, *collect(learner.policy, reward=lambda a: 1000.0 * (a - 0.5)))
    moments = {
        part: torch.cat(
            [
                moment.flatten()
                for name, moment in learner.state().optimizer.items()
                if name.startswith(part) and name.endswith("exp_avg")
            ]
        )
        for part in ("actor", "critic")
    }
    for moment in moments.values():
        assert moment.norm().item() / 0.1 == pytest.approx(0.01, rel=1e-2)


def test_critic_has_its_own_rate_and_follows_the_same_schedule():
    learner = make_learner(
        separate_optimizers=True,
        learning_rate=4e-4,
        learning_rate_end=1e-4,
        critic_learning_rate=8e-4,
        total_timesteps=64,
    )
    rows = [learn(learner, *collect(learner.policy, iteration=i)) for i in range(3)]
    assert [row["ppo/learning_rate"] for row in rows] == pytest.approx([4e-4, 2.5e-4, 1e-4])
    assert [row["ppo/critic_learning_rate"] for row in rows] == pytest.approx([8e-4, 5e-4, 2e-4])


def test_lowered_rates_and_two_optimizers_survive_a_restart():
    settings = {
        "separate_optimizers": True,
        "critic_learning_rate": 1e-3,
        "lr_backoff_kl": 1e-12,
        "lr_backoff_patience": 2,
        "batch_size": 16,
    }
    whole = make_learner(**settings)
    rows = [learn(whole, *collect(whole.policy, iteration=i)) for i in range(5)]
    first = make_learner(**settings)
    for i in range(3):  # in the middle of a count of two
        learn(first, *collect(first.policy, iteration=i))
    second = make_learner(make_policy(seed=5), **settings)
    second.load_state(first.state())
    again = [learn(second, *collect(second.policy, iteration=i)) for i in range(3, 5)]
    assert again == rows[3:]
    assert is_same_state(whole.state(), second.state())
    assert rows[4]["ppo/lr_backoff_events"] == 2


def test_gradient_of_one_half_that_is_not_finite_moves_neither():
    learner = make_learner(separate_optimizers=True, batch_size=32)
    storage, cells = collect(learner.policy)
    storage.rewards[7] = 1e300
    before = learner.state()
    metrics = learn(learner, storage, cells)
    assert metrics["health/nan_guard_trips"] == 1
    assert is_equal(before.model, learner.state().model)


def test_target_of_divergence_ends_a_step_in_pieces_before_it_is_taken():
    # The first step starts where the frames were collected, so its divergence is 0; the second
    # one sees what the first did.
    learner = make_learner(
        batch_size=16, minibatch_size=5, num_epochs=5, learning_rate=0.1, target_kl=1e-6
    )
    metrics = learn(learner, *collect(learner.policy))
    assert metrics["ppo/gradient_steps"] == 1
    assert metrics["ppo/epochs"] == 1


def test_last_iteration_is_not_cut_below_a_batch():
    learner = make_learner(
        total_timesteps=100, frames_per_iteration=64, batch_size=32, minibatch_size=8
    )
    learner.feedback(np.arange(94))
    assert learner.frames_wanted() == 32


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"batch_size": 4}, r"--algo.batch-size: got 4, expected at least .*, 8"),
        (
            {"batch_size": 64, "minibatch_size": None, "num_minibatches": 4},
            "--algo.batch-size: got 64, which needs --algo.minibatch-size",
        ),
        ({"critic_learning_rate": 1e-3}, "which needs --algo.separate-optimizers"),
        (
            {"critic_learning_rate": 0.0, "separate_optimizers": True},
            "--algo.critic-learning-rate: got 0.0, expected a positive",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        PPOConfig(**{"minibatch_size": 8, **settings})


def test_frozen_actor_that_moves_ends_the_run():
    policy = make_policy(action=BoxSpec(-1.0, 1.0, (2,), "float32"))
    learner = make_learner(policy, freeze_actor_until=32)
    step = learner._updater.optimizer.step

    def careless(*, is_actor_frozen):
        policy.head.log_std.data += 1.0
        return step(is_actor_frozen=is_actor_frozen)

    learner._updater.optimizer.step = careless
    before = weights(learner)
    with pytest.raises(UpdateError, match="the actor of mlp-policy moved while it was frozen"):
        learn(learner, *collect(policy))
    assert is_equal(before, weights(learner))
