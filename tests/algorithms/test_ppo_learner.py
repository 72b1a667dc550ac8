"""The learn step of PPO: what it changes, what it undoes, what it reports."""

import logging

import numpy as np
import pytest
import torch

from algorithms.errors import LearnAborted, UpdateError
from algorithms.ppo.batch import make_targets, minibatch_rows
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.ppo.metrics import StepLog
from algorithms.ppo.option_metrics import OPTION_METRICS, OPTION_STEP_METRICS
from algorithms.storage import RolloutStorage
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec, MultiDiscreteSpec, leaves
from tests.algorithms.rollouts import (
    OBSERVATION,
    collect,
    is_equal,
    is_same_state,
    learn,
    make_policy,
    weights,
)

CONTINUOUS = BoxSpec(-1.0, 1.0, (2,), "float32")
SPACES = {
    "discrete": {"action": DiscreteSpec(3)},
    "masked": {"action": DiscreteSpec(5, start=2), "masks": True},
    "multi-discrete": {"action": MultiDiscreteSpec((3, 2)), "masks": True},
    "clipped": {"action": CONTINUOUS, "normalize_observations": True},
    "rescaled": {"action": CONTINUOUS, "box_actions": "rescale"},
    "nested": {"observation": DictSpec((("a", OBSERVATION), ("b", BoxSpec(-9, 9, (), "float64"))))},
}


def make_learner(policy=None, seed=0, **settings):
    policy = make_policy() if policy is None else policy
    config = {"num_epochs": 2, "minibatch_size": 8, "total_timesteps": 1000, **settings}
    return PPO(PPOConfig(**config), policy, seed=seed)


@pytest.mark.parametrize("name", SPACES)
def test_ratio_is_one_before_anything_is_learnt(name):
    # Case H09, end to end: what is stored with a frame is what the unchanged weights say about it,
    # also after weights and statistics have moved.
    learner = make_learner(make_policy(**SPACES[name]))
    for iteration in range(3):
        storage, cells = collect(learner.policy, iteration=iteration)
        metrics = learn(learner, storage, cells)
        assert metrics["ppo/ratio_max_abs_dev"] < 1e-5
        assert metrics["ppo/trained_frames"] == 32


def test_ratio_shows_frames_of_other_weights():
    learner = make_learner()
    storage, cells = collect(make_policy(seed=1))
    with torch.no_grad():
        learner.policy.actor[-1].bias += torch.tensor([0.5, -0.5])
    assert learn(learner, storage, cells)["ppo/ratio_max_abs_dev"] > 0.1


def test_rewarded_action_becomes_likelier():
    policy = make_policy()
    learner = make_learner(policy, num_epochs=10, learning_rate=1e-2)
    for iteration in range(5):
        storage, cells = collect(
            policy, iteration=iteration, reward=lambda action: (action == 1) * 1.0, episode_length=1
        )
        learn(learner, storage, cells)
    actions = collect(policy, num_slots=64, iteration=9)[0].step_state["action"]
    assert actions.mean() > 0.9


def test_critic_learns_what_the_frames_were_worth():
    policy = make_policy()
    learner = make_learner(policy, num_epochs=20, learning_rate=1e-2)
    for iteration in range(5):
        storage, cells = collect(policy, iteration=iteration, reward=lambda a: np.full(len(a), 2.0))
        storage.finish(cells, np.ones(32, bool), np.zeros(32, bool))  # worth exactly the reward
        metrics = learn(learner, storage, cells)
    assert policy.values(storage.observations) == pytest.approx(np.full(32, 2.0), abs=0.5)
    assert metrics["ppo/value_loss"] < 0.1  # it was about 2 ** 2 / 2 = 2 at first


def test_entropy_bonus_makes_a_decided_policy_undecided():
    policy = make_policy()
    with torch.no_grad():
        policy.actor[-1].bias.copy_(torch.tensor([2.0, -2.0]))
    learner = make_learner(policy, num_epochs=10, learning_rate=1e-2, ent_coef=10.0)
    rows = [learn(learner, *collect(policy, iteration=i)) for i in range(3)]
    entropies = [row["ppo/entropy"] for row in rows]
    assert entropies == sorted(entropies)
    assert entropies[-1] > 0.6  # a fair coin has 0.693, the first policy 0.09


def test_learning_rate_of_zero_moves_no_weight():
    state = make_learner(total_timesteps=1000).state()
    state.counters.update(frames_learnt=1032, global_step=1032)
    learner = make_learner(total_timesteps=1000)
    learner.load_state(state)
    before = weights(learner)
    learn(learner, *collect(learner.policy))
    assert is_equal(before, weights(learner))


@pytest.mark.parametrize("num_frames", [1, 65])
def test_last_frames_alone_leave_all_weights_finite(num_frames):
    # Case H04: a deviation of one number is undefined.
    learner = make_learner(minibatch_size=64)
    storage, cells = collect(learner.policy, num_slots=1, num_steps=num_frames)
    learn(learner, storage, cells)
    assert all(tensor.isfinite().all() for tensor in weights(learner).values())


def test_every_frame_is_dealt_once_and_the_last_minibatch_takes_the_remainder():
    generator = np.random.default_rng(0)
    dealt = list(minibatch_rows(67, 16, generator, torch.device("cpu")))
    assert [len(rows) for rows in dealt] == [16, 16, 16, 19]  # 67 = 4 * 16 + 3
    assert sorted(torch.cat(dealt).tolist()) == list(range(67))
    few = list(minibatch_rows(3, 16, generator, torch.device("cpu")))
    assert [len(rows) for rows in few] == [3]


def test_frame_without_a_known_end_is_left_out_and_counted():
    learner = make_learner()
    storage, cells = collect(learner.policy)
    storage.rewards[5] = np.nan  # slot 1, second frame
    storage.bootstrap[28] = np.nan  # slot 0, last frame: nothing is known of what follows
    metrics = learn(learner, storage, cells)
    assert metrics["ppo/unused_frames"] == 2
    assert metrics["ppo/trained_frames"] == 30


def test_advantages_are_cut_where_a_frame_is_missing():
    # Four frames of one slot, V = 0, reward 1, gamma = lambda = 1; frame 2 was given up, and the
    # value of its observation, 10, is the bootstrap of frame 1. Frame 3 bootstraps from 20.
    # A[3] = 1 + 20 = 21, A[1] = 1 + 10 = 11, A[0] = 1 + 0 + A[1] = 12.
    policy = make_policy()
    storage = RolloutStorage(4, leaves(OBSERVATION), policy.step_state, None)
    cells = np.array([3, 1, 0])  # cells in an order that is not that of the slot
    storage.assign(cells, np.zeros(3, np.int64), np.array([0, 1, 3]))
    storage.add_rewards(cells, np.ones(3))
    storage.set_bootstrap(np.array([1, 0]), np.array([10.0, 20.0]))
    targets = make_targets(storage, cells, normalizer=None, gamma=1.0, gae_lambda=1.0)
    assert targets.cells.tolist() == [3, 1, 0]
    assert targets.advantages.tolist() == [12.0, 11.0, 21.0]


def test_iteration_without_a_usable_frame_ends_the_run():
    learner = make_learner()
    storage, cells = collect(learner.policy)
    storage.rewards[:] = np.nan
    with pytest.raises(UpdateError, match="none of the 32 frames"):
        learn(learner, storage, cells)
    assert learner.policy_version == 0


def test_gradient_that_is_not_finite_changes_no_bit_and_is_counted():
    # Case H06. A return of 1e300 is infinite in float32, so is the critic's loss.
    learner = make_learner(num_epochs=1, minibatch_size=32)
    learn(learner, *collect(learner.policy))
    before = learner.state()
    storage, cells = collect(learner.policy, iteration=1)
    storage.rewards[7] = 1e300
    metrics = learn(learner, storage, cells)
    after = learner.state()
    assert is_equal(before.model, after.model)
    assert is_equal(before.optimizer, after.optimizer)
    assert metrics["health/nan_guard_trips"] == 1
    assert metrics["ppo/gradient_steps"] == 0
    assert "ppo/policy_loss" not in metrics


def test_too_many_such_gradients_running_end_the_run_with_the_weights_from_before():
    learner = make_learner(num_epochs=4, minibatch_size=32, max_nonfinite_steps=3)
    storage, cells = collect(learner.policy)
    storage.rewards[7] = 1e300
    before = weights(learner)
    with pytest.raises(UpdateError, match=r"4 steps running.*allows 3.*ppo/value_loss"):
        learn(learner, storage, cells)
    assert is_equal(before, weights(learner))


def test_finite_gradient_starts_the_count_afresh():
    learner = make_learner(num_epochs=2, minibatch_size=32, max_nonfinite_steps=2)
    for iteration in range(4):
        storage, cells = collect(learner.policy, iteration=iteration)
        if iteration % 2 == 0:
            storage.rewards[7] = 1e300  # two skipped steps, then two good ones
        learn(learner, storage, cells)
    assert learner.policy_version == 4


def test_gradient_is_clipped_to_its_bound():
    # Case H06: [3, 4] has norm 5 and becomes [0.6, 0.8]. Adam hides the size of a gradient but
    # for the first moment, which is 0.1 times it after one step.
    learner = make_learner(num_epochs=1, minibatch_size=32, max_grad_norm=0.01)
    metrics = learn(learner, *collect(learner.policy))
    moments = [t for name, t in learner.state().optimizer.items() if name.endswith("exp_avg")]
    norm = torch.cat([moment.flatten() for moment in moments]).norm().item() / 0.1
    assert metrics["ppo/grad_norm"] > 0.01
    assert norm == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("after", [0, 3, 7])
def test_aborted_learn_step_leaves_everything_as_before(after):
    polls = iter([False] * after + [True])
    policy = make_policy(action=CONTINUOUS, normalize_observations=True)
    learner = make_learner(policy, scale_rewards=True)
    learn(learner, *collect(policy))
    storage, cells = collect(policy, iteration=1)
    learner.feedback(cells)
    before = learner.state()
    with pytest.raises(LearnAborted):
        learner.learn(storage, cells, should_abort=lambda: next(polls), progress=lambda *_: None)
    assert is_same_state(before, learner.state())
    assert learner.policy_version == 1


def test_failure_in_the_last_act_leaves_everything_as_before():
    def fail(observations):
        raise OSError("the last act")

    policy = make_policy()
    learner = make_learner(policy)
    policy.update_normalizers = fail
    before = learner.state()
    with pytest.raises(OSError, match="the last act"):
        learner.learn(*collect(policy), should_abort=lambda: False, progress=lambda *_: None)
    assert is_same_state(before, learner.state())


def test_learn_step_after_an_abort_equals_one_without():
    def run(is_aborted):
        learner = make_learner()
        storage, cells = collect(learner.policy)
        if is_aborted:
            polls = iter([False] * 5 + [True])
            with pytest.raises(LearnAborted):
                learner.learn(
                    storage, cells, should_abort=lambda: next(polls), progress=lambda *_: None
                )
        return learn(learner, storage, cells), weights(learner)

    (plain_metrics, plain), (metrics, undone) = run(False), run(True)
    assert is_equal(plain, undone)
    assert plain_metrics == metrics


def test_equal_runs_have_equal_weights_and_metrics():
    def run(seed):
        learner = make_learner(seed=seed, scale_rewards=True)
        metrics = [learn(learner, *collect(learner.policy, iteration=i)) for i in range(3)]
        return metrics, learner.state()

    (first, state), (second, same) = run(0), run(0)
    assert first == second
    assert is_same_state(state, same)
    assert not is_equal(state.model, run(1)[1].model)


def test_order_of_cells_does_not_matter():
    def run(shuffle):
        learner = make_learner()
        storage, cells = collect(learner.policy)
        learn(learner, storage, np.random.default_rng(5).permutation(cells) if shuffle else cells)
        return weights(learner)

    assert is_equal(run(False), run(True))


def test_observation_statistics_move_only_at_the_end_of_a_learn_step():
    policy = make_policy(normalize_observations=True)
    learner = make_learner(policy)
    observations = (np.full((2, 3), 5.0, np.float32),)
    first = policy.values(observations)
    storage, cells = collect(policy)
    assert np.array_equal(policy.values(observations), first)
    assert policy.normalizer_state()["0/count"].tolist() == [0, 0, 0]

    learn(learner, storage, cells)
    state = policy.normalizer_state()
    assert state["0/count"].tolist() == [32, 32, 32]
    expected = storage.observations[0].astype(np.float64).mean(0)
    assert state["0/mean"] == pytest.approx(expected, abs=1e-9)


def test_rewards_are_scaled_by_what_was_known_before_the_iteration():
    # Rewards of +-4 with episodes of one frame: the discounted return is the reward itself, so
    # its deviation is 4. The first iteration sees +-4, the second +-1: the targets of the
    # critic, which equal the rewards where every frame terminates, shrink likewise.
    def plus_minus(samples):
        return np.where(np.arange(len(samples)) % 4 < 2, 4.0, -4.0)

    learner = make_learner(scale_rewards=True)
    deviations = []
    for iteration in range(2):
        storage, cells = collect(
            learner.policy, iteration=iteration, reward=plus_minus, episode_length=1
        )
        storage.finish(cells, np.ones(32, bool), np.zeros(32, bool))
        deviations.append(learn(learner, storage, cells)["ppo/target_std"])
    assert deviations == pytest.approx([4.0, 1.0], rel=1e-6)


def test_how_far_the_policy_moved_is_not_told_before_it_has():
    # What a gradient step sees was moved by those before it, and there is none before the first.
    one, two = (
        learn(learner, *collect(learner.policy))
        for learner in (make_learner(num_epochs=1, minibatch_size=size) for size in (32, 16))
    )
    assert one["ppo/gradient_steps"] == 1
    assert not {"ppo/kl", "ppo/kl_epoch1"} & one.keys()
    assert two["ppo/kl"] == two["ppo/kl_epoch1"] > 0


def test_share_of_clipped_rewards_is_reported():
    # Known deviation 1 (rewards +-1 that end their episodes), then one of 32 rewards is 50.
    learner = make_learner(scale_rewards=True, scaled_reward_clip=10.0)
    for iteration in range(2):
        storage, cells = collect(
            learner.policy, iteration=iteration, reward=lambda a: np.array([1.0, -1.0, 1.0, -1.0])
        )
        storage.finish(cells, np.ones(32, bool), np.zeros(32, bool))
        storage.rewards[3] = 50.0 if iteration else -1.0
        metrics = learn(learner, storage, cells)
    assert metrics["ppo/reward_clip_frac"] == pytest.approx(1 / 32)


def test_first_learn_step_has_the_start_values_of_the_schedules():
    learner = make_learner(
        total_timesteps=64,
        learning_rate=3e-4,
        ent_coef=0.02,
        ent_coef_end=0.01,
        ent_coef_schedule="linear",
    )
    first = learn(learner, *collect(learner.policy))
    second = learn(learner, *collect(learner.policy, iteration=1))  # 32 of 64 frames learnt
    assert (first["ppo/learning_rate"], first["ppo/ent_coef"]) == (3e-4, 0.02)
    assert second["ppo/learning_rate"] == pytest.approx(1.5e-4)
    assert second["ppo/ent_coef"] == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("frames", "total", "expected"),
    [(400_000, 1_000_000, 1.8e-4), (1_003_072, 1_000_000, 0.0), (400_000, 2_000_000, 2.4e-4)],
)
def test_schedule_goes_on_from_the_saved_frames(frames, total, expected, caplog):
    # Case H12: 3e-4 * (1 - 400000 / 1000000) = 1.8e-4; below 0 it never goes; with the budget
    # raised to 2,000,000 it is 3e-4 * (1 - 0.2) = 2.4e-4, and the change is said aloud.
    old = make_learner(total_timesteps=1_000_000, learning_rate=3e-4)
    state = old.state()
    state.counters.update(frames_learnt=frames, global_step=frames)
    learner = make_learner(total_timesteps=total, learning_rate=3e-4)
    with caplog.at_level(logging.WARNING):
        learner.load_state(state)
    metrics = learn(learner, *collect(learner.policy))
    assert metrics["ppo/learning_rate"] == pytest.approx(expected, abs=1e-12)
    assert ("ran over 1000000 frames" in caplog.text) == (total != 1_000_000)


def test_horizon_stays_where_it_was_put_when_the_budget_grows(caplog):
    state = make_learner(total_timesteps=1000).state()
    longer = make_learner(total_timesteps=5000, horizon_frames=1000)
    with caplog.at_level(logging.WARNING):
        longer.load_state(state)
    assert caplog.text == ""


def test_learn_step_ends_before_a_gradient_step_that_is_too_far():
    learner = make_learner(num_epochs=20, learning_rate=0.05, target_kl=0.01)
    reports = []
    metrics = learn(
        learner,
        *collect(learner.policy),
        progress=lambda epoch, epochs, numbers: reports.append((epoch, epochs, set(numbers))),
    )
    assert 1 <= metrics["ppo/epochs"] < 20
    assert metrics["ppo/gradient_steps"] < 20 * 4
    assert len(reports) == metrics["ppo/epochs"]
    assert all(epochs == 20 and "ppo/kl" in keys for _, epochs, keys in reports)
    assert metrics["ppo/gradient_steps"] == 1
    assert metrics["ppo/kl"] > 0.01 / 2  # none before the step that was taken, too much after it


def test_learning_rate_backs_off_when_the_policy_keeps_moving_too_far():
    # Any movement exceeds the threshold. Patience 2: lowered after learn steps 2 and 4, then at
    # its floor of 0.25 and not counted any more.
    learner = make_learner(
        learning_rate=1e-2,
        learning_rate_schedule="constant",
        lr_backoff_kl=1e-12,
        lr_backoff_patience=2,
        lr_backoff_min=0.25,
    )
    rows = [learn(learner, *collect(learner.policy, iteration=i)) for i in range(7)]
    rates = [row["ppo/learning_rate"] for row in rows]
    assert rates == pytest.approx([1e-2, 1e-2, 5e-3, 5e-3, 2.5e-3, 2.5e-3, 2.5e-3])
    assert [row["ppo/lr_backoff_events"] for row in rows] == [0, 1, 1, 2, 2, 2, 2]


def test_frozen_actor_keeps_every_bit_while_the_critic_learns():
    policy = make_policy(action=CONTINUOUS)
    learner = make_learner(policy, freeze_actor_iterations=1)
    before = weights(learner)
    metrics = learn(learner, *collect(policy))
    after = weights(learner)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if name.startswith("critic.")}
    assert metrics["ppo/actor_frozen"] == 1
    assert not {"ppo/policy_loss", "ppo/kl", "ppo/clip_fraction"} & metrics.keys()
    assert not any(name.startswith("actor.") for name in learner.state().optimizer)

    metrics = learn(learner, *collect(policy, iteration=1))
    assert metrics["ppo/actor_frozen"] == 0
    assert not torch.equal(weights(learner)["head.log_std"], before["head.log_std"])


def test_losses_are_means_over_all_steps_and_the_divergence_is_that_of_the_last_pass():
    # Passes of two steps and of one. Losses (1 + 2 + 6) / 3 = 3; divergence 5, not (1 + 3 + 5) / 3.
    log = StepLog()
    for steps in ([(1.0, 1.0), (2.0, 3.0)], [(6.0, 5.0)]):
        for loss, kl in steps:
            log.add({"ppo/value_loss": torch.tensor(loss), "ppo/kl": torch.tensor(kl)})
        log.end_pass()
    assert log.means() == {"ppo/value_loss": 3.0, "ppo/kl": 5.0}
    assert (log.num_passes, log.num_steps) == (2, 3)


def test_emitted_metrics_are_the_declared_ones():
    declared = {spec.key for spec in PPO.metrics}
    always = {spec.key for spec in PPO.metrics if not spec.absent_when}
    assert len(declared) == len(PPO.metrics)
    plain = make_learner()
    full = make_learner(
        dual_clip=3.0, value_clip=0.2, scale_rewards=True, lr_backoff_kl=0.02, target_kl=9.0
    )
    rows = [learn(learner, *collect(learner.policy)) for learner in (plain, full)]
    of_options = {spec.key for spec in (*OPTION_STEP_METRICS, *OPTION_METRICS)}
    met = [{spec.key for spec in PPO.metrics for key in row if spec.matches(key)} for row in rows]
    assert all(any(spec.matches(key) for spec in PPO.metrics) for row in rows for key in row)
    assert met[0] < met[1] == declared - of_options
    assert all(always <= keys for keys in met)
    assert all(type(number) is float for row in rows for number in row.values())


def test_last_iteration_is_cut_to_end_at_the_budget_but_not_below_a_minibatch():
    learner = make_learner(total_timesteps=100, frames_per_iteration=64, minibatch_size=32)
    assert learner.frames_wanted() == 64
    learner.feedback(np.arange(64))
    assert learner.frames_wanted() == 36
    learner.feedback(np.arange(30))
    assert learner.frames_wanted() == 32
    assert learner.finished() is None
    learner.feedback(np.arange(32))
    assert learner.finished() == "126 of 100 frames collected"


def test_run_is_finished_early_once_the_last_episodes_are_good_enough():
    learner = make_learner(stop_at_return=475.0, stop_window=4)
    learner.episodes_finished(np.array([500.0, 500.0, 500.0]))
    assert learner.finished() is None  # three are not the last four
    learner.episodes_finished(np.array([396.0]))
    assert learner.finished() is None  # mean 474
    learner.episodes_finished(np.array([500.0]))
    assert learner.finished() is None  # the window moved on: (500 + 500 + 396 + 500) / 4 = 474
    learner.episodes_finished(np.array([500.0, 500.0]))
    assert learner.finished() is None  # (396 + 3 * 500) / 4 = 474
    learner.episodes_finished(np.array([500.0]))
    assert learner.finished() == "mean return of the last 4 episodes is 500.0, the goal was 475.0"


def test_policy_that_cannot_be_trained_is_refused():
    from algorithms.policies.config import DummyPolicyConfig
    from algorithms.policies.dummy import DummyPolicy

    policy = DummyPolicy(DummyPolicyConfig(), make_policy().spaces)
    with pytest.raises(ConfigError, match="dummy-policy cannot judge stored actions"):
        PPO(PPOConfig(), policy, seed=0)
