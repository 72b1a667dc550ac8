"""What PPO's schedules, its no-op bonus and frames without a choice do to a learn step."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithms.distributions import Categorical
from algorithms.ppo.config import VARIANTS, PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.ppo.metrics import METRICS
from algorithms.ppo.option_metrics import OPTION_METRICS, OPTION_STEP_METRICS
from algorithms.schedules import Geometric
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, MultiDiscreteSpec
from tests.algorithms.arenas import SMALL, make_arena_policy, make_masks
from tests.algorithms.rollouts import collect, learn, make_noise, make_policy, weights
from tests.algorithms.test_ppo_batches import MASKED, collect_forced, make_learner

FORCED = np.array([0, 1, 5, 13, 14, 15, 16, 31])
FREE = np.setdiff1d(np.arange(32), FORCED)


def critic_only(**settings):
    return make_learner(make_policy(**MASKED), forced_rows="critic_only", **settings)


# --- gamma ------------------------------------------------------------------------------------


def test_geometric_schedule_multiplies_by_equal_factors():
    # From 0.1 to 0.001 over 100: 0.01 half-way, 0.1 * 0.01**0.25 = 0.0316228 after a quarter.
    schedule = Geometric(0.1, 0.001, 100)
    assert schedule.value(0) == 0.1
    assert schedule.value(25) == pytest.approx(0.0316228, abs=1e-7)
    assert schedule.value(50) == pytest.approx(0.01)
    assert schedule.value(100) == schedule.value(10**9) == 0.001
    with pytest.raises(ValueError, match="must be positive"):
        Geometric(0.1, 0.0, 100)


def test_discount_looks_ahead_by_equal_factors_until_its_horizon():
    # 1 - gamma goes from 0.1 to 0.001 over 64 frames: 0.1, 0.01 after 32, 0.001 after 64.
    learner = make_learner(gamma=0.9, gamma_end=0.999, gamma_horizon=64, scale_rewards=True)
    rows = [learn(learner, *collect(learner.policy, iteration=i)) for i in range(4)]
    gammas = [row["ppo/gamma"] for row in rows]
    assert gammas == pytest.approx([0.9, 0.99, 0.999, 0.999], abs=1e-12)
    assert learner._return_normalizer.gamma == pytest.approx(0.999)


def test_the_discount_that_environments_are_told_is_the_one_their_frames_are_learnt_with():
    learner = make_learner(gamma=0.9, gamma_end=0.999, gamma_horizon=64)
    for iteration in range(4):
        storage, cells = collect(learner.policy, iteration=iteration)
        told = learner.discount()
        assert learn(learner, storage, cells)["ppo/gamma"] == told
    fixed = make_learner(gamma=0.95)
    learn(fixed, *collect(fixed.policy))
    assert fixed.discount() == 0.95


def test_discount_of_the_moment_is_that_of_the_advantages():
    # One frame, V = 0.5 now and 10 after it, reward 0: A = gamma * 10 - 0.5. At first gamma is
    # 0.9, hence 8.5; after 32 frames of a horizon of 32 it is 0.99, hence 9.4.
    learner = make_learner(gamma=0.9, gamma_end=0.99, gamma_horizon=32)
    found = []
    for iteration in range(2):
        storage, cells = collect(
            learner.policy, iteration=iteration, episode_length=10**6, reward=np.zeros_like
        )
        storage.step_state["value"][:] = 0.5
        storage.ordinals[:] = np.arange(32) * 2  # nothing follows anything: all bootstrap
        storage.slots[:] = 0
        storage.bootstrap[:] = 10.0
        found.append(learn(learner, storage, cells)["ppo/advantage_mean"])
    assert found == pytest.approx([8.5, 9.4])


# --- entropy weights --------------------------------------------------------------------------


def test_weights_of_the_bonuses_have_horizons_of_their_own():
    # After 32 frames: entropy 0.02 -> 0.01 over 64 is 0.015, no-op 0.4 -> 0 over 128 is 0.3.
    learner = make_learner(
        make_policy(**MASKED),
        ent_coef=0.02,
        ent_coef_end=0.01,
        ent_coef_schedule="linear",
        ent_coef_horizon=64,
        noop_ent_coef=0.4,
        noop_ent_coef_schedule="linear",
        noop_ent_coef_horizon=128,
    )
    rows = [learn(learner, *collect(learner.policy, iteration=i)) for i in range(2)]
    assert [row["ppo/ent_coef"] for row in rows] == pytest.approx([0.02, 0.015])
    assert [row["ppo/noop_ent_coef"] for row in rows] == pytest.approx([0.4, 0.3])


def test_question_of_acting_has_the_entropy_of_a_coin_of_its_probability():
    # Logits 0, 0, 0 and the last masked: P(0) = 1/3, hence ln 3 - 2/3 ln 2 = 0.63651417.
    # Masks that leave 0 alone, or all but 0, have answered the question.
    mask = torch.tensor(
        [[True, True, True, False], [True, False, False, False], [False, True, True, True]]
    )
    logits = torch.zeros(3, 4, requires_grad=True)
    entropy = Categorical(logits, mask).noop_entropy()
    assert entropy.tolist() == pytest.approx([0.63651417, 0.0, 0.0], abs=1e-6)
    entropy.sum().backward()
    # d H / d logit 0 = -p (1 - p) ln(p / (1 - p)) = 2/9 ln 2 = 0.15403271, shared out by the
    # others: -0.07701635 each.
    assert logits.grad[0].tolist() == pytest.approx(
        [0.15403271, -0.07701635, -0.07701635, 0.0], abs=1e-6
    )
    assert not logits.grad[1:].any()


def test_noop_bonus_makes_a_policy_that_always_waits_undecided():
    policy = make_policy(**MASKED)
    with torch.no_grad():
        policy.actor[-1].bias.copy_(torch.tensor([3.0, 0.0, 0.0, 0.0]))
    learner = make_learner(policy, num_epochs=10, learning_rate=1e-2, noop_ent_coef=10.0)
    rows = [learn(learner, *collect_forced(policy, FORCED, i)) for i in range(3)]
    entropies = [row["ppo/noop_entropy"] for row in rows]
    assert entropies == sorted(entropies)
    assert entropies[-1] > 0.6  # a fair coin has 0.693


@pytest.mark.parametrize("forced_rows", ["all", "critic_only"])
def test_noop_entropy_is_the_mean_over_frames_with_a_choice(forced_rows):
    # Equal logits. The 24 free frames have 2 to 4 legal actions, action 0 among them; its mean
    # over them is worked out from their masks. The eight forced frames would pull it down.
    policy = make_policy(**MASKED)
    with torch.no_grad():
        policy.actor[-1].weight.zero_()
        policy.actor[-1].bias.zero_()
    storage, cells = collect_forced(policy, FORCED)
    shares = 1.0 / storage.read_masks(FREE).sum(1)
    expected = -(shares * np.log(shares) + (1 - shares) * np.log(1 - shares)).mean()
    learner = make_learner(
        policy,
        forced_rows=forced_rows,
        noop_ent_coef=1e-9,
        batch_size=32,
        minibatch_size=7,
        num_epochs=1,
    )
    assert learn(learner, storage, cells)["ppo/noop_entropy"] == pytest.approx(expected, rel=1e-5)


# --- frames without a choice ------------------------------------------------------------------


def test_actor_is_asked_only_where_there_is_a_choice_and_the_critic_everywhere():
    learner = critic_only(batch_size=16, minibatch_size=6)
    policy = learner.policy
    asked, valued = [], []
    distribution, values = policy.distribution, policy.evaluate_values

    def ask(observations, masks):
        asked.append(masks.sum(1))
        return distribution(observations, masks)

    def value(observations):
        valued.append(len(observations[0]))
        return values(observations)

    storage, cells = collect_forced(policy, FORCED)
    policy.distribution, policy.evaluate_values = ask, value
    metrics = learn(learner, storage, cells)
    assert len(torch.cat(asked)) == len(FREE)
    assert (torch.cat(asked) > 1).all()
    assert sum(valued) == 32
    assert metrics["ppo/choice_frac"] == len(FREE) / 32
    assert metrics["ppo/trained_frames"] == 32


def test_frames_without_a_choice_change_nothing_about_the_actor():
    # The same frames with and without the forced ones, advantages given: the actor's gradient and
    # all that is said about it are those of the free frames alone.
    def run(cells_kept, forced_rows, **settings):
        policy = make_policy(**MASKED)
        storage, _ = collect_forced(policy, FORCED)
        storage.ordinals[:] = np.arange(32) * 2
        storage.slots[:] = 0  # nothing follows anything: advantages do not depend on neighbours
        with torch.no_grad():
            policy.actor[-1].bias += torch.tensor([0.4, -0.4, 0.1, 0.2])
        learner = make_learner(
            policy,
            forced_rows=forced_rows,
            separate_optimizers=True,
            batch_size=len(cells_kept),
            minibatch_size=len(cells_kept),
            learning_rate=1e-2,
            ent_coef=0.01,
            **settings,
        )
        return learn(learner, storage, cells_kept), weights(learner)

    def kl(cells_kept, forced_rows):
        """Of a first gradient step, which is told only if it is refused for it."""
        return run(cells_kept, forced_rows, target_kl=1e-9)[0]["ppo/kl"]

    alone, alone_weights = run(FREE, "all")
    among, among_weights = run(np.arange(32), "critic_only")
    keys = ("ppo/policy_loss", "ppo/clip_fraction", "ppo/entropy", "ppo/grad_norm_actor")
    for key in keys:
        assert among[key] == pytest.approx(alone[key], rel=1e-4, abs=1e-6), key
    assert kl(np.arange(32), "critic_only") == pytest.approx(kl(FREE, "all"), rel=1e-4)
    assert kl(np.arange(32), "all") == pytest.approx(kl(FREE, "all") * 24 / 32, rel=1e-4)
    for name, tensor in alone_weights.items():
        is_same = torch.allclose(among_weights[name], tensor, atol=2e-5)
        assert is_same or name.startswith("critic."), name


def test_iteration_without_any_choice_trains_the_critic_alone():
    learner = critic_only()
    before = weights(learner)
    metrics = learn(learner, *collect_forced(learner.policy, np.arange(32)))
    moved = {name for name, tensor in weights(learner).items() if not tensor.equal(before[name])}
    assert moved == {name for name in before if name.startswith("critic.")}
    assert metrics["ppo/choice_frac"] == 0.0
    assert not {"ppo/policy_loss", "ppo/kl", "ppo/entropy"} & metrics.keys()
    assert metrics["ppo/gradient_steps"] == 4


def test_steps_without_a_choice_do_not_count_in_the_means_of_the_actor():
    # The order of the frames is fixed, so steps of one frame each: 24 of 32 have an actor.
    learner = critic_only(minibatch_size=1, learning_rate=1e-12)
    storage, cells = collect_forced(learner.policy, FORCED)
    with torch.no_grad():
        observations = learner.policy.prepare(tuple(leaf[FREE] for leaf in storage.observations))
        masks = torch.from_numpy(storage.read_masks(FREE))
        expected = learner.policy.distribution(observations, masks).entropy().mean().item()
    metrics = learn(learner, storage, cells)
    assert metrics["ppo/gradient_steps"] == 32
    assert metrics["ppo/entropy"] == pytest.approx(expected, rel=1e-4)


def test_forced_frame_stored_with_another_probability_than_one_shows_in_the_ratio():
    learner = critic_only(batch_size=32)
    storage, cells = collect_forced(learner.policy, FORCED)
    storage.step_state["log_prob"][FORCED[2]] = math.log(0.5)  # a ratio of 2
    metrics = learn(learner, storage, cells)
    assert metrics["ppo/ratio_max_abs_dev"] == pytest.approx(1.0, abs=1e-4)


# --- frozen actors ----------------------------------------------------------------------------


def test_actor_is_frozen_for_the_first_frames_and_then_learns():
    learner = make_learner(freeze_actor_until=40, num_epochs=2)
    before = weights(learner)
    asked = []
    distribution = learner.policy.distribution
    learner.policy.distribution = lambda *given: asked.append(0) or distribution(*given)
    for iteration in range(2):  # after 0 and after 32 frames
        metrics = learn(learner, *collect(learner.policy, iteration=iteration))
        assert metrics["ppo/actor_frozen"] == 1
        absent = ("policy_loss", "kl", "clip_fraction", "entropy")
        assert not {f"ppo/{key}" for key in absent} & metrics.keys()
        assert metrics["ppo/ratio_max_abs_dev"] < 1e-5
    assert len(asked) == 2  # for the ratio of each learn step's first minibatch
    moved = {name for name, tensor in weights(learner).items() if not tensor.equal(before[name])}
    assert moved == {name for name in before if name.startswith("critic.")}
    assert learn(learner, *collect(learner.policy, iteration=2))["ppo/actor_frozen"] == 0
    assert not weights(learner)["actor.0.weight"].equal(before["actor.0.weight"])


# --- what does not fit ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gamma_end": 1.0}, r"--algo.gamma, --algo.gamma-end: got 0.99 and 1.0, expected"),
        ({"gamma": 1.0, "gamma_end": 0.9}, "--algo.gamma, --algo.gamma-end: got 1.0 and 0.9"),
        ({"gamma_horizon": 5}, "--algo.gamma-horizon: got 5, which needs --algo.gamma-end"),
        ({"gamma_end": 0.9, "gamma_horizon": 0}, "--algo.gamma-horizon: got 0, expected a whole"),
        ({"ent_coef_horizon": 5}, "--algo.ent-coef-horizon: got 5, which needs --algo.ent-coef-s"),
        (
            {"ent_coef_horizon": 0, "ent_coef_schedule": "linear"},
            "--algo.ent-coef-horizon: got 0, expected a whole",
        ),
        ({"noop_ent_coef_horizon": 5}, "which needs --algo.noop-ent-coef-schedule linear"),
        ({"noop_ent_coef": -1.0}, "--algo.noop-ent-coef: got -1.0"),
        ({"noop_ent_coef_end": -1.0}, "--algo.noop-ent-coef-end: got -1.0"),
        ({"freeze_actor_until": -1}, "--algo.freeze-actor-until: got -1"),
        (
            {"freeze_actor_until": 1, "freeze_actor_iterations": 1},
            "--algo.freeze-actor-iterations, --algo.freeze-actor-until: got 1 and 1",
        ),
    ],
)
def test_senseless_settings_are_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        PPOConfig(**settings)


@pytest.mark.parametrize(
    ("action", "masks", "settings", "sentence"),
    [
        (DiscreteSpec(3), False, {"noop_ent_coef": 0.1}, "got actions of Discrete without masks"),
        (MultiDiscreteSpec((2, 2)), True, {"noop_ent_coef_end": 0.1}, "MultiDiscrete with masks"),
        (BoxSpec(-1, 1, (2,), "float32"), False, {"noop_ent_coef": 0.1}, "Box without masks"),
        (DiscreteSpec(3), False, {"forced_rows": "critic_only"}, "environments send no masks"),
    ],
)
def test_settings_that_the_environments_cannot_serve_are_refused(action, masks, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        PPO(PPOConfig(**settings), make_policy(action, masks=masks), seed=0)


def test_settings_that_need_two_halves_are_refused_for_a_policy_in_one_piece():
    from docs.examples.linear_policy import LinearPolicy, LinearPolicyConfig

    policy = LinearPolicy(LinearPolicyConfig(), make_policy().spaces)
    for settings in ({"separate_optimizers": True}, {"forced_rows": "critic_only"}):
        with pytest.raises(ConfigError, match="whose actor and critic can be asked apart"):
            PPO(PPOConfig(**settings), policy, seed=0)
    learner = PPO(PPOConfig(num_epochs=1), policy, seed=0)
    assert learn(learner, *collect(policy))["ppo/trained_frames"] == 32


# --- the variant ------------------------------------------------------------------------------


def collect_arena(policy, iteration=0, num_slots=2):
    """Frames of the arena's shape; in each eight, two leave nothing to choose."""
    storage, cells = collect(policy, num_slots=num_slots, num_steps=4, iteration=iteration)
    rows = len(cells)
    storage.observations[0][:] = np.random.default_rng(iteration).integers(
        0, 3, storage.observations[0].shape
    )
    first = SMALL["hand_start"]
    storage.observations[1][:, first : first + 4] = (0, 1, 0, 0)  # slot 1 holds a card of its own
    forced = np.flatnonzero(np.isin(cells % 8, (1, 6)))
    masks = make_masks(rows, seed=iteration, forced=forced)
    storage.write_masks(cells, masks)
    inference = policy.act(storage.observations, masks, make_noise(rows, step=iteration))
    storage.write_step_state(cells, inference.complete())
    return storage, cells


def test_arena_variant_trains_the_arena_policy_and_reports_what_is_declared():
    policy = make_arena_policy()
    config = replace(VARIANTS["arena"], minibatch_size=3, batch_size=8, gamma_end=0.999)
    learner = PPO(config, policy, seed=0)
    rows = [learn(learner, *collect_arena(policy, iteration=i)) for i in range(2)]
    declared = {spec.key: spec for spec in METRICS}
    of_freeze = {key for key in declared if key.endswith("_unfreeze")}
    of_options = {spec.key for spec in (*OPTION_METRICS, *OPTION_STEP_METRICS)} - of_freeze
    assert of_options <= set(rows[1])
    assert all(any(spec.matches(key) for spec in METRICS) for key in rows[1])
    for row in rows:
        assert row["ppo/ratio_max_abs_dev"] < 1e-4
        assert row["ppo/choice_frac"] == 0.75
        stages = sum(row[f"ppo/entropy_{stage}"] for stage in ("gate", "slot", "tile"))
        assert stages == pytest.approx(row["ppo/entropy"], rel=1e-4)
        assert row["ppo/entropy_gate"] == pytest.approx(row["ppo/noop_entropy"], rel=1e-4)
    assert all(spec.population for key, spec in declared.items() if "entropy" in key)


def test_arena_policy_learns_with_what_to_act():
    # Acting with slot 1 pays 1, with another one costs 1, waiting is worth nothing. Half of the
    # free frames have been playing at random; in the end most of the playing is done with slot 1.
    policy = make_arena_policy(act_probability=0.5)
    config = replace(
        VARIANTS["arena"], minibatch_size=64, batch_size=64, learning_rate=3e-2, gamma=0.0
    )
    learner = PPO(config, policy, seed=0)

    def play(iteration):
        storage, cells = collect_arena(policy, iteration, num_slots=32)
        actions = storage.step_state["action"]
        slots = (actions - 1) // 240
        storage.rewards[:] = np.where(actions == 0, 0.0, np.where(slots == 1, 1.0, -1.0))
        return storage, cells, (slots[actions > 0] == 1).mean()

    for iteration in range(12):
        storage, cells, share = play(iteration)
        learn(learner, storage, cells)
    assert share > 0.9
