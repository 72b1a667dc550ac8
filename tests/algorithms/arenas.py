"""Made-up observations of the arena's shape, for the tests of what plays there."""

import numpy as np
import torch

from algorithms.policies.arena import ArenaPolicy
from algorithms.policies.config import ArenaPolicyConfig
from algorithms.spaces import Spaces
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec

NUM_ACTIONS = 961
PLANES = BoxSpec(0, 255, (6, 20, 12), "uint8")
VECTOR = BoxSpec(-1, 1, (5,), "float32")
OBSERVATION = DictSpec((("planes", PLANES), ("vector", VECTOR)))
SMALL = {
    "channels": 4,
    "blocks": 1,
    "hidden_size": 8,
    "keys": 4,
    "card_planes": (1,),
    "hand_start": 1,
    "hand_names": 1,
}


def make_spaces(observation=OBSERVATION, action=None, masks=True):
    action = DiscreteSpec(NUM_ACTIONS) if action is None else action
    return Spaces(observation=observation, action=action, masks=masks)


def make_arena_policy(seed=0, spaces=None, **settings):
    """A small policy that is not undecided: every output is moved away from its start."""
    torch.manual_seed(seed)
    policy = ArenaPolicy(
        ArenaPolicyConfig(**{**SMALL, **settings}), make_spaces() if spaces is None else spaces
    )
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return policy


def observe(num_rows, seed=0):
    generator = np.random.default_rng(seed)
    planes = generator.integers(0, 200, (num_rows, *PLANES.shape), np.uint8)
    planes[generator.random(planes.shape) < 0.8] = 0
    return planes, generator.random((num_rows, *VECTOR.shape), np.float32)


def make_masks(num_rows, seed=0, forced=()):
    """A third of the tiles legal; no legal tile in slot 2; rows of ``forced`` may only wait."""
    generator = np.random.default_rng(seed)
    masks = generator.random((num_rows, NUM_ACTIONS)) < 0.3
    masks[:, 1 + 2 * 240 : 1 + 3 * 240] = False
    masks[:, 0] = True
    masks[list(forced), 1:] = False
    return masks
