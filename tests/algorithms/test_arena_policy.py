"""The arena policy: what it takes, what it answers, what it learns from."""

import numpy as np
import pytest
import torch

from algorithms.noise import Noise
from algorithms.policies.arena import ArenaPolicy
from algorithms.policies.config import ARENA_VARIANTS, ArenaPolicyConfig
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec, MultiDiscreteSpec
from tests.algorithms.arenas import (
    NUM_ACTIONS,
    OBSERVATION,
    PLANES,
    SMALL,
    VECTOR,
    make_arena_policy,
    make_masks,
    make_spaces,
    observe,
)
from tests.algorithms.rollouts import make_noise

ROWS = 24
FORCED = (3, 17)


def answer(policy, deterministic=False, step=0):
    masks = make_masks(ROWS, forced=FORCED)
    return masks, policy.act(observe(ROWS), masks, make_noise(ROWS, step), deterministic)


def judge(policy, masks, actions):
    tensors = policy.prepare(observe(len(masks)))
    return policy.evaluate_actions(tensors, torch.from_numpy(masks), torch.from_numpy(actions))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("deterministic", [False, True])
def test_stored_log_probability_is_what_the_same_weights_say_in_learning(stride, deterministic):
    policy = make_arena_policy(stride=stride)
    masks, inference = answer(policy, deterministic)
    stored = inference.complete()
    now = judge(policy, masks, stored["action"])
    assert now.log_prob.detach().numpy() == pytest.approx(stored["log_prob"], abs=1e-5)
    assert now.values.detach().numpy() == pytest.approx(stored["value"], abs=1e-5)
    assert now.log_prob.shape == now.entropy.shape == now.values.shape == (ROWS,)


def test_answer_has_the_declared_layout_and_legal_actions():
    policy = make_arena_policy()
    masks, inference = answer(policy)
    (actions,) = inference.actions
    assert actions.dtype == np.int64
    assert masks[np.arange(ROWS), actions].all()
    stored = inference.complete()
    assert stored.keys() == policy.step_state.keys()
    for name, column in stored.items():
        assert (column.dtype, column.shape) == (policy.step_state[name].dtype, (ROWS,))


def test_row_that_may_only_wait_waits_with_log_probability_zero_to_the_last_bit():
    policy = make_arena_policy()
    masks, inference = answer(policy)
    stored = inference.complete()
    assert stored["action"][list(FORCED)].tolist() == [0, 0]
    assert (stored["log_prob"][list(FORCED)] == 0.0).all()
    now = judge(policy, masks, stored["action"])
    assert (now.log_prob[list(FORCED)] == 0.0).all()
    assert now.entropy[list(FORCED)].tolist() == pytest.approx([0.0, 0.0], abs=1e-30)


def test_samples_have_the_shares_of_the_probabilities():
    # One observation, 20,000 times, with three actions legal: shares within four deviations,
    # 4 * sqrt(0.25 / 20000) = 0.014.
    policy = make_arena_policy(act_probability=0.5)
    rows = 20_000
    mask = np.zeros(NUM_ACTIONS, bool)
    mask[[0, 10, 800]] = True
    planes, vector = observe(1)
    tensors = policy.prepare((planes, vector))
    legal = torch.from_numpy(mask)[None]
    distribution = policy.distribution(tensors, legal)
    expected = [distribution.log_prob(torch.tensor([a])).exp().item() for a in (0, 10, 800)]
    noise = Noise(
        np.zeros(rows, np.uint64), np.zeros(rows, np.uint64), np.arange(rows, dtype=np.uint64)
    )
    chosen = []
    for start in range(0, rows, 1000):
        part = slice(start, start + 1000)
        few = Noise(noise.keys[part], noise.episodes[part], noise.steps[part])
        observations = (np.repeat(planes, 1000, 0), np.repeat(vector, 1000, 0))
        chosen.append(policy.act(observations, np.tile(mask, (1000, 1)), few).actions[0])
    counts = np.bincount(np.concatenate(chosen), minlength=NUM_ACTIONS)
    assert set(counts.nonzero()[0]) <= {0, 10, 800}
    assert counts[[0, 10, 800]] / rows == pytest.approx(expected, abs=0.015)


def test_samples_follow_the_noise_and_modes_are_the_likeliest_actions():
    policy = make_arena_policy()

    def act(step, deterministic):
        return answer(policy, deterministic, step)[1].actions[0].tolist()

    assert act(0, False) == act(0, False) != act(1, False)
    assert act(0, True) == act(1, True)
    masks = make_masks(ROWS, forced=FORCED)
    distribution = policy.distribution(policy.prepare(observe(ROWS)), torch.from_numpy(masks))
    assert act(0, True) == distribution.mode().tolist()


def test_row_is_answered_alike_in_any_batch():
    policy = make_arena_policy()
    masks, whole = answer(policy)
    observations, noise = observe(ROWS), make_noise(ROWS)
    for i in (0, FORCED[0], ROWS - 1):
        row = slice(i, i + 1)
        alone = policy.act(
            tuple(leaf[row] for leaf in observations),
            masks[row],
            Noise(noise.keys[row], noise.episodes[row], noise.steps[row]),
        )
        assert alone.actions[0].tolist() == whole.actions[0][row].tolist()
        for name, column in alone.complete().items():
            assert column == pytest.approx(whole.complete()[name][row], abs=1e-5)


def test_no_row_is_answered_by_no_row():
    policy = make_arena_policy()
    inference = policy.act(observe(0), make_masks(0), make_noise(0))
    assert inference.actions[0].shape == (0,)
    assert inference.complete()["value"].shape == policy.values(observe(0)).shape == (0,)


def test_read_only_arrays_are_taken_and_left_alone():
    policy = make_arena_policy()
    observations, masks = observe(5), make_masks(5)
    copies = [leaf.copy() for leaf in (*observations, masks)]
    for leaf in (*observations, masks):
        leaf.flags.writeable = False
    policy.act(observations, masks, make_noise(5)).complete()
    assert all(map(np.array_equal, copies, (*observations, masks)))


def test_numbers_that_are_not_finite_still_give_a_legal_action_and_show_in_what_is_stored():
    policy = make_arena_policy()
    planes, vector = observe(2)
    vector[1] = np.nan
    masks = make_masks(2)
    masks[1, 0] = False
    inference = policy.act((planes, vector), masks, make_noise(2))
    assert masks[[0, 1], inference.actions[0]].all()
    assert np.isfinite(inference.complete()["log_prob"]).tolist() == [True, False]


def test_untrained_policy_acts_as_often_as_it_is_told():
    # A quarter: the gate's bias is ln(1/3), its weights are a hundredth of a usual layer's.
    torch.manual_seed(0)
    policy = ArenaPolicy(ArenaPolicyConfig(**SMALL, act_probability=0.25), make_spaces())
    masks = torch.from_numpy(make_masks(ROWS))
    waiting = policy.distribution(policy.prepare(observe(ROWS)), masks).log_prob(
        torch.zeros(ROWS, dtype=torch.int64)
    )
    assert 1.0 - waiting.exp().detach().numpy() == pytest.approx(np.full(ROWS, 0.25), abs=0.03)


def test_saved_weights_make_the_same_policy():
    policy, other = make_arena_policy(seed=0), make_arena_policy(seed=1)
    before = answer(policy)[1]
    assert answer(other)[1].actions[0].tolist() != before.actions[0].tolist()
    other.load_state_dict({name: tensor.clone() for name, tensor in policy.tensors().items()})
    after = answer(other)[1]
    assert after.actions[0].tolist() == before.actions[0].tolist()
    for name, column in after.complete().items():
        assert np.array_equal(column, before.complete()[name])


def test_weights_are_saved_as_they_lie():
    assert all(tensor.is_contiguous() for tensor in make_arena_policy().tensors().values())


def test_actor_and_critic_share_no_weight():
    policy = make_arena_policy()
    tensors = policy.prepare(observe(3))
    policy.evaluate_values(tensors).sum().backward()
    actor = policy.actor_parameters()
    assert all(parameter.grad is None for parameter in actor)
    assert len(actor) + len(list(policy.critic.parameters())) == len(list(policy.parameters()))


def test_every_weight_is_learnt():
    policy = make_arena_policy()
    masks = make_masks(ROWS)
    now = judge(policy, masks, answer(policy)[1].complete()["action"])
    (now.log_prob.sum() + now.values.sum()).backward()
    still = [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.any()]
    assert still == []


def test_what_is_learnt_of_a_card_holds_in_every_slot():
    # Slots 0 and 3 hold the same card: whatever the weights, they ask for the same.
    policy = make_arena_policy(hand_start=0, hand_names=1)
    planes, vector = observe(1)
    vector[0, 3] = vector[0, 0]
    masks = np.ones((1, NUM_ACTIONS), bool)
    tensors = policy.prepare((planes, vector))
    log_probs = torch.stack(
        [
            policy.distribution(tensors, torch.from_numpy(masks)).log_prob(torch.tensor([a]))[0]
            for a in (1 + 17, 1 + 3 * 240 + 17, 1 + 240 + 17)
        ]
    ).tolist()
    assert log_probs[0] == pytest.approx(log_probs[1], abs=1e-6)
    assert log_probs[0] != pytest.approx(log_probs[2], abs=1e-6)


def test_hand_that_the_vector_does_not_hold_is_refused():
    with pytest.raises(ConfigError, match=r"--policy.hand-start, --policy.hand-names: got 2 and 1"):
        make_arena_policy(hand_start=2, hand_names=1)


def test_two_names_differ_by_more_than_their_numbers():
    # Plane 1 holds names. Without the embedding of name 9 only its number is left to see.
    policy = make_arena_policy()
    planes, vector = observe(1)
    planes[0, 1, 4, 5] = 9
    before = policy.values((planes, vector))
    with torch.no_grad():
        policy.critic.trunk.names.weight[9] += 1.0
    assert policy.values((planes, vector)) != before
    planes[0, 1] = 0
    empty = policy.values((planes, vector))
    with torch.no_grad():
        policy.critic.trunk.names.weight[9] += 1.0
    assert policy.values((planes, vector)) == empty


@pytest.mark.parametrize("stride", [1, 2])
def test_tile_is_where_the_observation_has_it(stride):
    # What lies on tile (y, x) reaches the features one convolution around it: with stride 1 that
    # is one tile, with stride 2 the features at (y / 2 - 1 .. y / 2 + 1), hence three tiles at
    # most. The summary, which sees everything, is silenced; its biases still ask.
    policy = make_arena_policy(blocks=0, stride=stride)
    planes, vector = observe(1)
    changed = planes.copy()
    changed[0, :, 14, 3] ^= 64
    actor = policy.actor
    with torch.no_grad():
        actor.summary.layer.weight.zero_()
        actor.summary.layer.bias.fill_(1.0)
        one, other = (
            actor(policy.prepare((rows, vector))).tiles.view(4, 20, 12)
            for rows in (planes, changed)
        )
    moved = (one - other).abs().amax(0) > 1e-6
    rows, columns = moved.nonzero().T
    assert moved[14, 3]
    assert (rows - 14).abs().max() <= (1 if stride == 1 else 3)
    assert (columns - 3).abs().max() <= (1 if stride == 1 else 3)


@pytest.mark.parametrize(
    ("observation", "sentence"),
    [
        (PLANES, r"observation space: got Box of uint8 \(6, 20, 12\), this policy takes a Dict"),
        (DictSpec((("planes", PLANES),)), "observation space: got a Dict of planes, this"),
        (
            DictSpec((("planes", PLANES), ("vector", VECTOR), ("x", VECTOR))),
            "got a Dict of planes, vector, x",
        ),
        (
            DictSpec((("planes", BoxSpec(0, 1, (6, 20, 11), "uint8")), ("vector", VECTOR))),
            r"observation planes: got Box of uint8 \(6, 20, 11\)",
        ),
        (
            DictSpec((("planes", BoxSpec(0, 1, (6, 20, 12), "float32")), ("vector", VECTOR))),
            r"observation planes: got Box of float32 \(6, 20, 12\)",
        ),
        (
            DictSpec((("planes", PLANES), ("vector", DiscreteSpec(3)))),
            "observation vector: got Discrete",
        ),
        (
            DictSpec((("planes", PLANES), ("vector", BoxSpec(0, 1, (0,), "float32")))),
            r"observation vector: got Box of float32 \(0,\)",
        ),
    ],
)
def test_observations_of_another_shape_are_refused(observation, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_arena_policy(spaces=make_spaces(observation))


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (DiscreteSpec(960), r"action space: got Discrete\(960\), this policy takes Discrete"),
        (MultiDiscreteSpec((961,)), "action space: got MultiDiscrete"),
    ],
)
def test_actions_of_another_kind_are_refused(action, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_arena_policy(spaces=make_spaces(action=action))


def test_environments_without_masks_are_refused():
    with pytest.raises(ConfigError, match="action masks: the environments send none"):
        make_arena_policy(spaces=make_spaces(OBSERVATION, masks=False))


def test_plane_of_names_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"--policy.card-planes: got \(1, 6\).*planes 0 to 5"):
        make_arena_policy(card_planes=(1, 6))


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"channels": 0}, "--policy.channels: got 0"),
        ({"blocks": -1}, "--policy.blocks: got -1"),
        ({"critic_channels": 0}, "--policy.critic-channels: got 0"),
        ({"critic_blocks": -1}, "--policy.critic-blocks: got -1"),
        ({"stride": 3}, "--policy.stride: got 3, expected 1 or 2"),
        ({"hidden_size": 0}, "--policy.hidden-size: got 0"),
        ({"keys": 0}, "--policy.keys: got 0"),
        ({"card_planes": (2, 2)}, r"--policy.card-planes: got \(2, 2\)"),
        ({"card_planes": (-1,)}, r"--policy.card-planes: got \(-1,\)"),
        ({"card_embedding": 0}, "--policy.card-embedding: got 0"),
        ({"hand_start": -1}, "--policy.hand-start: got -1"),
        ({"hand_names": 0}, "--policy.hand-names: got 0"),
        ({"act_probability": 1.0}, "--policy.act-probability: got 1.0"),
    ],
)
def test_senseless_settings_are_refused(settings, flag):
    with pytest.raises(ConfigError, match=f"arena-policy: {flag}"):
        ArenaPolicyConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "name", "shape"),
    [
        ({"channels": 6}, "actor.trunk.amounts.weight", (6, 24)),
        ({"channels": 6}, "critic.trunk.amounts.weight", (6, 24)),
        ({"critic_channels": 3}, "critic.trunk.amounts.weight", (3, 24)),
        ({"blocks": 2}, "critic.trunk.blocks.1.second.bias", (4,)),
        ({"critic_blocks": 3}, "critic.trunk.blocks.2.second.bias", (4,)),
        ({"stride": 1}, "actor.trunk.place", (240, 4)),
        ({"hidden_size": 9}, "critic.summary.layer.bias", (9,)),
        ({"keys": 5}, "actor.places", (5, 240)),
        ({"card_planes": (0, 1, 2)}, "actor.trunk.cards.weight", (4, 48)),
        ({"card_embedding": 7}, "actor.trunk.names.weight", (256, 7)),
    ],
)
def test_every_setting_of_size_is_heard(settings, name, shape):
    assert tuple(make_arena_policy(**settings).state_dict()[name].shape) == shape


def test_named_variants_are_there():
    assert set(ARENA_VARIANTS) == {"default", "large"}
