"""Small policies and iterations of made-up frames, for the tests of learners."""

import numpy as np
import torch

from algorithms.noise import Noise, slot_key
from algorithms.policies.config import MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.spaces import Spaces
from algorithms.storage import RolloutStorage
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, leaves, mask_size

OBSERVATION = BoxSpec(-np.inf, np.inf, (3,), "float32")


def make_spaces(action=None, observation=OBSERVATION, masks=False):
    action = DiscreteSpec(2) if action is None else action
    return Spaces(observation=observation, action=action, masks=masks)


def make_policy(action=None, observation=OBSERVATION, masks=False, seed=0, **settings):
    torch.manual_seed(seed)
    config = MLPPolicyConfig(**{"hidden_sizes": (8,), **settings})
    return MLPPolicy(config, make_spaces(action, observation, masks))


def make_noise(num_rows, step=0, episode=0):
    keys = np.array([slot_key(0, "client", slot) for slot in range(num_rows)], np.uint64)
    return Noise(keys, np.full(num_rows, episode, np.uint64), np.full(num_rows, step, np.uint64))


def collect(policy, *, num_slots=4, num_steps=8, iteration=0, reward=None, episode_length=5):
    """Fill a storage as the server would, from random observations of a known generator.

    ``reward(samples)`` turns the stored samples of a batch into its rewards; without it rewards
    are random. Every slot's episode ends after ``episode_length`` of its frames, half of them
    terminated and half truncated.
    """
    capacity = num_slots * num_steps
    action_masks = mask_size(policy.spaces.action) if policy.spaces.masks else None
    storage = RolloutStorage(
        capacity, leaves(policy.spaces.observation), policy.step_state, action_masks
    )
    generator = np.random.default_rng(iteration)
    slots = np.arange(num_slots)
    for step in range(num_steps):
        cells = slots + step * num_slots
        ordinal = iteration * num_steps + step
        storage.assign(cells, slots, np.full(num_slots, ordinal))
        for column in storage.observations:
            column[cells] = 3.0 + 2.0 * generator.standard_normal((num_slots, *column.shape[1:]))
        masks = None
        if action_masks is not None:
            masks = generator.random((num_slots, action_masks)) < 0.5
            masks[:, ::2] = True
            storage.write_masks(cells, masks)
        inference = policy.act(
            storage.observations_of(cells), masks, make_noise(num_slots, ordinal)
        )
        step_state = inference.complete()
        storage.write_step_state(cells, step_state)
        samples = step_state["action"]
        rewards = generator.standard_normal(num_slots) if reward is None else reward(samples)
        storage.add_rewards(cells, rewards)
        is_last = np.full(num_slots, (ordinal + 1) % episode_length == 0)
        storage.finish(cells, is_last & (slots % 2 == 0), is_last & (slots % 2 == 1))
        storage.set_bootstrap(cells, generator.standard_normal(num_slots))
    return storage, np.arange(capacity)


def learn(learner, storage, cells, *, should_abort=lambda: False, progress=lambda *_: None):
    learner.feedback(cells)
    return learner.learn(storage, cells, should_abort=should_abort, progress=progress)


def weights(learner):
    return {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}


def is_equal(one, other):
    """Whether two dictionaries of tensors are equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def is_same_state(one, other):
    return (
        is_equal(one.model, other.model)
        and is_equal(one.optimizer, other.optimizer)
        and one.counters == other.counters
    )
