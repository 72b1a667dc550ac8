"""Gymnasium's spaces of one seat, for every interface that has some."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from royale_client.envs.arena.columns import VECTOR_SIZE
from royale_client.envs.arena.rules import ACTIONS
from royale_client.envs.arena.tensors import PLANES_SHAPE


def observation_space() -> spaces.Dict:
    """What a seat sees: planes of tiles, and numbers; see `columns`."""
    return spaces.Dict(
        {
            "planes": spaces.Box(0, 255, PLANES_SHAPE, np.uint8),
            "vector": spaces.Box(0.0, 1.0, (VECTOR_SIZE,), np.float32),
        }
    )


def action_space() -> spaces.Discrete[Any]:
    """What a seat does: nothing, or a card of its hand on a tile of its own frame."""
    return spaces.Discrete(ACTIONS)
