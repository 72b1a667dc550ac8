"""The dummy pair: random legal actions, and an algorithm that only takes time."""

import time

import numpy as np
import pytest

from algorithms.dummy.config import DummyConfig
from algorithms.dummy.learner import DummyLearner
from algorithms.errors import LearnAborted, RestoreError
from algorithms.policies.config import DummyPolicyConfig
from algorithms.policies.dummy import DummyPolicy
from algorithms.storage import RolloutStorage
from royale_client.wire.spaces import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    TextSpec,
    TupleSpec,
    leaves,
)
from tests.algorithms.rollouts import OBSERVATION, make_noise, make_policy, make_spaces

ROWS = 400


def make_dummy(action, masks=False):
    return DummyPolicy(DummyPolicyConfig(), make_spaces(action, masks=masks))


def act(policy, masks=None, num_rows=ROWS, step=0):
    observations = (np.zeros((num_rows, 3), np.float32),)
    return policy.act(observations, masks, make_noise(num_rows, step))


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        (DiscreteSpec(5, start=-2), -2, 2),
        (MultiDiscreteSpec((3, 7)), [0, 0], [2, 6]),
        (MultiBinarySpec((2, 2)), 0, 1),
        (BoxSpec(-2, 3, (2,), "float32"), -2, 3),
        (BoxSpec(-2, 3, (2,), "int8"), -2, 3),
        (BoxSpec(250, 255, (), "uint8"), 250, 255),
        (BoxSpec(0, 1, (3,), "bool"), 0, 1),
        (BoxSpec(-(2**63), 2**63 - 1, (), "int64"), -(2**63), 2**63 - 1),
        (BoxSpec(2, np.inf, (2,), "float64"), 2, np.inf),
        (BoxSpec(-np.inf, -2, (2,), "float16"), -np.inf, -2),
        (BoxSpec(-np.inf, np.inf, (), "float32"), -np.inf, np.inf),
    ],
)
def test_actions_of_every_kind_are_inside_the_space(spec, low, high):
    (leaf,) = leaves(spec)
    (actions,) = act(make_dummy(spec)).actions
    assert actions.dtype == leaf.dtype
    assert actions.shape == (ROWS, *leaf.shape)
    assert (actions >= low).all()
    assert (actions <= high).all()
    assert len(np.unique(actions.reshape(ROWS, -1), axis=0)) > 1


def test_few_whole_numbers_all_occur_about_equally_often():
    (actions,) = act(make_dummy(BoxSpec(-1, 2, (), "int64")), num_rows=4000).actions
    values, counts = np.unique(actions, return_counts=True)
    assert values.tolist() == [-1, 0, 1, 2]
    # Deviation of a count: sqrt(4000 * 1/4 * 3/4) = 27; five of them.
    assert np.abs(counts - 1000).max() < 137


def test_texts_have_legal_letters_and_end_in_zeros():
    (texts,) = act(make_dummy(TextSpec(4, "ab"))).actions
    assert texts.dtype == np.uint32
    lengths = (texts > 0).sum(1)
    assert set(lengths) == {1, 2, 3, 4}
    assert set(np.unique(texts)) == {0, ord("a"), ord("b")}
    assert all((row[:length] > 0).all() for row, length in zip(texts, lengths, strict=True))


def test_nests_are_answered_leaf_by_leaf():
    spec = DictSpec(
        (("b", TupleSpec((DiscreteSpec(2), OBSERVATION))), ("a", MultiBinarySpec((2,))))
    )
    answer = act(make_dummy(spec))
    assert [leaf.path for leaf in leaves(spec)] == ["a", "b/0", "b/1"]
    assert [array.shape for array in answer.actions] == [(ROWS, 2), (ROWS,), (ROWS, 3)]


@pytest.mark.parametrize("spec", [DiscreteSpec(6, start=10), MultiDiscreteSpec((4, 2))])
def test_only_legal_actions_are_chosen_and_all_of_them(spec):
    masks = np.tile([False, True, False, True, True, False], (ROWS, 1))
    (actions,) = act(make_dummy(spec, masks=True), masks).actions
    assert actions.dtype == np.int64
    columns = actions.reshape(ROWS, -1).T
    expected = [{11, 13, 14}] if isinstance(spec, DiscreteSpec) else [{1, 3}, {0}]
    assert [set(column) for column in columns] == expected


def test_choice_depends_on_the_rows_own_noise_only():
    policy = make_dummy(MultiDiscreteSpec((50, 50)))
    many, few = act(policy).actions[0], act(policy, num_rows=3).actions[0]
    assert np.array_equal(many[:3], few)
    assert not np.array_equal(act(policy, step=1).actions[0], many)


def test_random_policy_has_no_values_and_stores_nothing():
    policy = make_dummy(DiscreteSpec(2))
    assert policy.values((np.zeros((3, 3)),)).tolist() == [0.0, 0.0, 0.0]
    assert act(policy).step_state == policy.step_state == {}


def make_learner(policy=None, **settings):
    return DummyLearner(DummyConfig(**settings), policy or make_dummy(DiscreteSpec(2)), seed=0)


def learn(learner, should_abort=lambda: False):
    cells = np.arange(100)
    storage = RolloutStorage(100, leaves(OBSERVATION), learner.policy.step_state, None)
    return learner.learn(storage, cells, should_abort=should_abort, progress=lambda *_: None)


def test_run_learns_every_hundred_frames_and_ends_at_three_hundred():
    learner = make_learner()
    for _ in range(3):
        assert learner.finished() is None
        assert learner.frames_wanted() == 100
        learner.feedback(np.arange(100))
        assert learn(learner) == {}
    assert learner.finished() == "300 of 300 frames collected"
    assert learner.policy_version == 3
    assert not learner.saves


def test_pretended_learn_step_takes_its_time_and_ends_when_asked():
    began = time.monotonic()
    learn(make_learner(learn_s=0.02))
    assert time.monotonic() - began >= 0.02
    polls = iter([False, True])
    learner = make_learner(learn_s=3600.0)
    with pytest.raises(LearnAborted):
        learn(learner, should_abort=lambda: next(polls))
    assert learner.policy_version == 0


def test_pretended_inference_takes_its_time_and_answers_as_the_policy_does():
    policy = make_policy(DiscreteSpec(3))
    slow = make_learner(policy, infer_s=0.02).policy
    began = time.monotonic()
    answer = act(slow, num_rows=4)
    assert time.monotonic() - began >= 0.02
    assert np.array_equal(answer.actions[0], act(policy, num_rows=4).actions[0])
    assert slow.step_state == policy.step_state


def test_counters_are_taken_over_from_a_dummy_run_only():
    learner = make_learner()
    learner.feedback(np.arange(7))
    other = make_learner()
    other.load_state(learner.state())
    assert other.global_step == 7
    with pytest.raises(RestoreError, match="no weights to restore"):
        other.load_state(learner.state(), "model")
