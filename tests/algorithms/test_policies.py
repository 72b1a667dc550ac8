"""The fully connected policy: what it takes, what it answers, what it stores."""

import copy
import gc
import math
import sys

import numpy as np
import pytest
import torch

from algorithms.policies.encoding import ObservationEncoder
from algorithms.policies.heads import make_head
from algorithms.policies.tower import Tower
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
    TupleSpec,
)
from tests.algorithms.rollouts import OBSERVATION, make_noise, make_policy

CAMERA = BoxSpec(0, 255, (2, 2), "uint8")


class GivenNoise:
    """Noise whose normal numbers are given."""

    def __init__(self, *numbers):
        self.numbers = np.array([numbers])

    def normal(self, purpose, lanes):
        return self.numbers


def make_constant_policy(action, outputs, **settings):
    """A policy whose actor says the same everywhere."""
    policy = make_policy(action, **settings)
    with torch.no_grad():
        policy.actor[-1].weight.zero_()
        policy.actor[-1].bias.copy_(torch.tensor(outputs))
    return policy


def observe(num_rows, seed=0):
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((num_rows, 3)).astype(np.float32),)


@pytest.mark.parametrize(
    ("spec", "leaves", "expected"),
    [
        (BoxSpec(-9, 9, (2, 2), "float64"), [[[[1, 2], [3, 4]]]], [1, 2, 3, 4]),
        (BoxSpec(-9, 9, (2,), "int32"), [[[-7, 8]]], [-7, 8]),
        (BoxSpec(-9, 9, (), "float32"), [[2.5]], [2.5]),
        (CAMERA, [[[[0, 51], [102, 255]]]], [0, 0.2, 0.4, 1]),
        (DiscreteSpec(4, start=-1), [[1]], [0, 0, 1, 0]),
        (MultiDiscreteSpec((2, 3)), [[[1, 0]]], [0, 1, 1, 0, 0]),
        (MultiBinarySpec((3,)), [[[1, 0, 1]]], [1, 0, 1]),
        (
            DictSpec((("z", DiscreteSpec(2)), ("a", TupleSpec((OBSERVATION, CAMERA))))),
            [[[1, 2, 3]], [[[0, 0], [0, 255]]], [1]],  # leaves in key order: a/0, a/1, z
            [1, 2, 3, 0, 0, 0, 1, 0, 1],
        ),
    ],
)
def test_observations_become_one_row_of_numbers(spec, leaves, expected):
    from royale_client.wire.spaces import leaves as leaves_of

    arrays = tuple(
        np.array(rows, leaf.dtype) for rows, leaf in zip(leaves, leaves_of(spec), strict=True)
    )
    encoder = ObservationEncoder(spec)
    matrix = encoder.encode(arrays)
    assert matrix.dtype == np.float32
    assert matrix.shape == (1, encoder.width)
    assert matrix[0].tolist() == pytest.approx(expected)


def test_spaces_that_do_not_fit_are_refused_all_at_once():
    observation = DictSpec((("say", TextSpec(5)), ("see", OBSERVATION)))
    with pytest.raises(ConfigError) as caught:
        make_policy(MultiBinarySpec((3,)), observation)
    text = str(caught.value)
    assert "observation say: got Text, this policy takes Box, Discrete, MultiDiscrete" in text
    assert (
        "action space: got MultiBinary, this policy takes Discrete, MultiDiscrete and Box" in text
    )


@pytest.mark.parametrize(
    ("action", "observation", "settings", "sentence"),
    [
        (BoxSpec(0, 3, (2,), "int64"), OBSERVATION, {}, "a Box of int64"),
        (BoxSpec(0, np.inf, (2,), "float32"), OBSERVATION, {"box_actions": "rescale"}, "finite"),
        (DictSpec((("a", DiscreteSpec(2)),)), OBSERVATION, {}, "got Dict"),
        (DiscreteSpec(2), DiscreteSpec(100_000), {}, "a vector of 100000 numbers"),
        (DiscreteSpec(2), BoxSpec(0, 1, (0,), "float32"), {}, "a vector of 0 numbers"),
    ],
)
def test_refusal_names_what_was_got(action, observation, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_policy(action, observation, **settings)


def test_stored_is_the_sample_and_the_environment_gets_it_clipped():
    # Case H09. Mean 0.9, deviation 0.3, sample 1.4: log-density
    # -0.5 * (0.5 / 0.3)**2 - ln 0.3 - 0.5 ln(2 pi) = -1.38888889 + 1.20397280 - 0.91893853
    # = -1.10385462 (in float32 of the inputs).
    policy = make_constant_policy(
        BoxSpec(-1, 1, (1,), "float32"), [0.9], log_std_init=math.log(0.3)
    )
    answer = policy.act(observe(1), None, GivenNoise((1.4 - 0.9) / 0.3))
    assert answer.complete()["action"][0, 0] == pytest.approx(1.4)
    assert answer.complete()["log_prob"][0] == pytest.approx(-1.10385454, abs=1e-5)
    assert answer.actions[0].tolist() == [[1.0]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_actions_have_the_exact_dtype_and_shape_and_keep_inside_the_bounds(dtype):
    bounds = BoxSpec(-0.1, [[0.1, 0.2], [0.3, 0.4]], (2, 2), dtype)
    policy = make_policy(bounds, log_std_init=2.0)
    (actions,) = policy.act(observe(50), None, make_noise(50)).actions
    assert actions.dtype == np.dtype(dtype)
    assert actions.shape == (50, 2, 2)
    assert (actions >= bounds.low).all()
    assert (actions <= bounds.high).all()
    assert (actions == bounds.high).any(0).all()  # deviation e**2: many are clipped


def test_rescaled_samples_meet_both_bounds_and_the_middle():
    # [-1, 1] is stretched onto [-0.1, 0.3]: -1 -> -0.1, 0 -> 0.1, 0.5 -> 0.2, 7 -> 0.3.
    bounds = BoxSpec(-0.1, 0.3, (1,), "float32")
    head = make_head(bounds, "rescale", 0.0)
    samples = np.array([[-1.0], [0.0], [0.5], [7.0], [-7.0]], np.float32)
    (actions,) = head.to_environment(samples)
    assert actions[:, 0] == pytest.approx([-0.1, 0.1, 0.2, 0.3, -0.1])
    assert actions[3] == bounds.high
    assert actions[4] == bounds.low


def test_discrete_actions_count_from_the_start_of_the_space_and_samples_from_zero():
    policy = make_constant_policy(DiscreteSpec(3, start=-5), [0.0, 0.0, 9.0])
    answer = policy.act(observe(2), None, make_noise(2), deterministic=True)
    assert answer.actions[0].tolist() == [-3, -3]
    assert answer.actions[0].dtype == np.int64
    assert answer.complete()["action"].tolist() == [2, 2]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("action", [DiscreteSpec(4), MultiDiscreteSpec((4, 3))])
def test_masked_actions_are_never_chosen(action, deterministic):
    width = 4 if isinstance(action, DiscreteSpec) else 7
    policy = make_constant_policy(action, [9.0] + [0.0] * (width - 1), masks=True)
    masks = np.tile([False, True, True, False, True, False, True][:width], (500, 1))
    answer = policy.act(observe(500), masks, make_noise(500), deterministic)
    chosen = answer.complete()["action"].reshape(500, -1)
    assert set(chosen[:, 0]) <= {1, 2}
    assert set(chosen[:, -1]) <= ({0, 2} if width == 7 else {1, 2})
    assert np.isfinite(answer.complete()["log_prob"]).all()


def test_row_is_answered_alike_in_any_batch():
    policy = make_policy(MultiDiscreteSpec((5, 4)))
    observations, noise = observe(32), make_noise(32)
    whole = policy.act(observations, None, noise)
    for i in (0, 7, 31):
        row = slice(i, i + 1)
        part_noise = type(noise)(noise.keys[row], noise.episodes[row], noise.steps[row])
        part = policy.act((observations[0][row],), None, part_noise)
        assert part.actions[0].tolist() == whole.actions[0][row].tolist()
        for name, column in part.complete().items():
            assert column == pytest.approx(whole.complete()[name][row], abs=1e-6)


def test_samples_follow_the_noise_and_modes_do_not():
    policy = make_policy(BoxSpec(-1, 1, (2,), "float32"))
    observations = observe(4)

    def act(step, deterministic):
        answer = policy.act(observations, None, make_noise(4, step), deterministic)
        return answer.complete()["action"].tolist()

    assert act(0, False) == act(0, False) != act(1, False)
    assert act(0, True) == act(1, True)


def test_answer_has_the_declared_layout():
    for action in (DiscreteSpec(3), MultiDiscreteSpec((2, 2)), BoxSpec(-1, 1, (), "float64")):
        policy = make_policy(action)
        answer = policy.act(observe(6), None, make_noise(6))
        assert answer.complete().keys() == policy.step_state.keys()
        for name, column in answer.complete().items():
            assert column.dtype == policy.step_state[name].dtype
            assert column.shape == (6, *policy.step_state[name].shape)


@pytest.mark.parametrize("normalize_observations", [False, True])
def test_read_only_observations_are_taken_and_left_alone(normalize_observations):
    policy = make_policy(normalize_observations=normalize_observations)
    policy.update_normalizers(observe(9))
    (rows,) = observe(5)
    copy = rows.copy()
    rows.flags.writeable = False
    values = policy.act((rows,), None, make_noise(5)).complete()["value"]
    assert np.array_equal(rows, copy)
    assert np.array_equal(values, policy.values((rows,)))
    assert values.shape == (5,)


def test_observations_are_normalised_by_known_statistics_and_clipped():
    # Mean 5, population deviation 2 (4 and 4 around it): 9 becomes 2, 5000 is clipped to 3.
    policy = make_policy(normalize_observations=True, observation_clip=3.0)
    policy.update_normalizers((np.array([[3.0] * 3, [7.0] * 3], np.float32),))
    (matrix,) = policy.prepare((np.array([[9.0, 5.0, 5000.0]], np.float32),))
    assert matrix[0].tolist() == pytest.approx([2.0, 0.0, 3.0], abs=1e-6)


def test_judgement_of_stored_actions_has_one_number_a_row():
    # Case H07: a joint log-probability is a sum over the parts, of shape (5,).
    policy = make_policy(MultiDiscreteSpec((3, 2)))
    answer = policy.act(observe(5), None, make_noise(5))
    now = policy.evaluate_actions(
        policy.prepare(observe(5)), None, torch.from_numpy(answer.complete()["action"])
    )
    ratio = (now.log_prob - torch.from_numpy(answer.complete()["log_prob"])).exp()
    assert ratio.shape == now.entropy.shape == now.values.shape == (5,)
    assert ratio.detach().numpy() == pytest.approx(np.ones(5), abs=1e-6)


def test_actor_and_critic_share_nothing_and_the_critic_has_its_name():
    policy = make_policy(BoxSpec(-1, 1, (2,), "float32"), critic_hidden_sizes=(5, 6))
    names = {name for name, _ in policy.named_parameters()}
    assert {name for name in names if name.startswith("critic.")} == {
        f"critic.{layer}.{kind}" for layer in range(3) for kind in ("weight", "bias")
    }
    actor = policy.actor_parameters()
    assert len(actor) == len(names) - 6
    assert policy.values(observe(2)).shape == (2,)
    assert all(p.grad is None for p in actor)
    (matrix,) = policy.prepare(observe(2))
    policy.critic(matrix).sum().backward()
    assert all(p.grad is None for p in actor)


def test_weights_start_orthogonal_with_the_gains_of_their_layers():
    torch.manual_seed(0)
    tower = Tower([4, 8, 2], "tanh", last_gain=0.01)
    first, last = tower[0].weight, tower[1].weight
    # Columns (or rows, where there are fewer) are orthogonal with the gain as length.
    assert torch.allclose(first.T @ first, 2.0 * torch.eye(4), atol=1e-5)
    assert torch.allclose(last @ last.T, 1e-4 * torch.eye(2), atol=1e-8)
    assert not tower[0].bias.any()


def test_copy_of_a_policy_keeps_its_own_weights():
    policy = make_policy()
    pinned = copy.deepcopy(policy)
    before = policy.values(observe(3))
    with torch.no_grad():
        policy.critic[0].bias += 1.0
    assert np.array_equal(pinned.values(observe(3)), before)
    pinned.load_state_dict(policy.state_dict())
    assert np.array_equal(pinned.values(observe(3)), policy.values(observe(3)))
    assert not np.array_equal(pinned.values(observe(3)), before)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
def test_tower_computes_what_its_layers_say(activation):
    torch.manual_seed(0)
    tower = Tower([3, 5, 2], activation, last_gain=1.0)
    rows = torch.randn(4, 3)
    function = {"tanh": torch.tanh, "relu": torch.relu}.get(activation)
    function = function or getattr(torch.nn.functional, activation)
    assert torch.equal(tower(rows), tower[1](function(tower[0](rows))))


def test_number_of_python_calls_does_not_depend_on_the_rows():
    policy = make_policy(normalize_observations=True)
    policy.update_normalizers(observe(9))

    def count_calls(num_rows):
        observations, noise = observe(num_rows), make_noise(num_rows)
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in {"call", "c_call"}

        policy.act(observations, None, noise)
        gc.disable()  # test tools hang Python callbacks on the collector
        sys.setprofile(count)
        policy.act(observations, None, noise)
        sys.setprofile(None)
        gc.enable()
        return calls

    assert count_calls(8) == count_calls(256) < 400


def completed(policy, inferences, sizes):
    """Complete batches so many at a time, and lay what they come to one after the other."""
    parts, begin = [], 0
    for size in sizes:
        parts.append(policy.complete(inferences[begin : begin + size]))
        begin += size
    assert begin == len(inferences)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.parametrize(
    "action",
    [
        DiscreteSpec(4),
        MultiDiscreteSpec((3, 2)),
        BoxSpec(-1, 1, (2,), "float32"),
    ],
)
@pytest.mark.parametrize("rows", [(1,), (3,), (16,), (8, 8, 7)], ids=str)
def test_a_row_comes_to_the_same_bits_however_batches_are_completed_together(action, rows):
    """A checkpoint completes what there is: a run that takes one must go on as one without."""
    policy = make_policy(action, hidden_sizes=(64, 64))
    inferences = [
        policy.act(observe(rows[k % len(rows)], seed=k), None, make_noise(rows[k % len(rows)]))
        for k in range(12)
    ]
    alone = completed(policy, inferences, [1] * 12)
    for sizes in ([12], [5, 7], [11, 1], [2, 3, 4, 3]):
        together = completed(policy, inferences, sizes)
        assert {n: a.tobytes() for n, a in together.items()} == {
            n: a.tobytes() for n, a in alone.items()
        }
