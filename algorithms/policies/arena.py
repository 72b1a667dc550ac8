"""The policy of the arena: cards on tiles, one choice out of 961 under a mask.

Takes 20 × 12 tiles of small numbers beside a vector, whatever they mean, and needs the mask of
legal actions with every observation. Knows no rules. Letters: n rows, P planes, V numbers.
"""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algorithms.base import Inference
from algorithms.config import refuse
from algorithms.noise import Noise, Purpose
from algorithms.policies.arena_network import (
    HEIGHT,
    NUM_ACTIONS,
    NUM_SLOTS,
    NUM_TILES,
    WIDTH,
    ArenaActor,
    ArenaCritic,
    Cells,
    to_cells,
)
from algorithms.policies.config import ArenaPolicyConfig
from algorithms.policies.staged import (
    NUM_STAGES,
    Chosen,
    StagedCategorical,
    choose_in_stages,
    gate_stage,
    layout,
    masked_log_softmax,
    masked_stages,
)
from algorithms.sampling import Float32Array, FloatArray
from algorithms.spaces import ArraySpec, Spaces
from algorithms.split_policy import SplitPolicy
from algorithms.storage import Array, BoolArray, IntArray
from royale_client.wire.spaces import BoxSpec, DictSpec, DiscreteSpec, SpaceSpec, leaves

_EXPECTED = (
    f"this policy takes a Dict of planes, a Box of uint8 (P, {HEIGHT}, {WIDTH}), and vector, a Box "
    "of float32 (V,)"
)


class ArenaPolicy(SplitPolicy):
    """Residual trunks over tiles; an actor that decides whether, with what, and where.

    Weights are initialised by torch's global generator: seed it first.

    Args:
        config: Settings.
        spaces: Observation and action space.
        device: Where the weights live.

    Raises:
        ConfigError: If a space does not fit or no masks come with the observations.
    """

    uid = "arena-policy"

    def __init__(
        self, config: ArenaPolicyConfig, spaces: Spaces, *, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        refuse(self.uid, space_problems(spaces, config))
        self.spaces = spaces
        self._config = config
        planes, vector = leaves(spaces.observation)
        self.actor = ArenaActor(planes.shape[0], vector.shape[0], config)
        self.critic = ArenaCritic(planes.shape[0], vector.shape[0], config)
        self.step_state = {
            "action": ArraySpec((), np.dtype(np.int64)),
            "log_prob": ArraySpec((), np.dtype(np.float32)),
            "value": ArraySpec((), np.dtype(np.float32)),
        }
        self._start = spaces.action.start if isinstance(spaces.action, DiscreteSpec) else 0
        self._device = torch.device(device)
        self.to(device)

    def act(
        self,
        observations: tuple[Array, ...],
        masks: BoolArray | None,
        noise: Noise,
        deterministic: bool = False,
    ) -> Inference:
        """Choose an action for each row; see the base class."""
        if masks is None:
            raise ValueError(f"{self.uid}: observations came without masks, which it needs")
        cells = self._cells(observations)
        chosen = self._choose(cells, masks, None if deterministic else noise)
        actions = chosen.actions + self._start if self._start else chosen.actions
        return Inference(
            actions=(actions,),
            step_state={"action": chosen.actions, "log_prob": chosen.log_probs},
            later=lambda: {"value": self._values(cells)},
        )

    @torch.inference_mode()
    def _choose(self, cells: Cells, masks: BoolArray, noise: Noise | None) -> Chosen:
        """Decide for all rows; those that can only wait are not shown to the actor."""
        numbers = None if noise is None else noise.uniform(Purpose.ACTION, NUM_STAGES)
        may_act = np.asarray(masks[:, 1:].any(1))
        if may_act.all():
            return self._decide(cells, masks, numbers)
        chosen = Chosen(np.zeros(len(masks), np.int64), np.zeros(len(masks), np.float32))
        if may_act.any():
            rows = may_act.nonzero()[0]
            some = Cells(*(tensor[rows] for tensor in cells))
            drawn = None if numbers is None else numbers[rows]
            chosen.actions[rows], chosen.log_probs[rows] = self._decide(some, masks[rows], drawn)
        return chosen

    def _decide(self, cells: Cells, masks: BoolArray, numbers: FloatArray | None) -> Chosen:
        """Ask the actor; what it says of places is only computed where something is played."""
        actor = self.actor
        looked = actor.look(cells)
        hand = actor.hand(looked.summary, cells.vector)
        mask = self._tensor(masks)
        legal = mask[:, 1:].view(len(mask), NUM_SLOTS, NUM_TILES)
        is_open = legal.any(-1)

        def slots_of(rows: IntArray) -> Float32Array:
            return _as_array(masked_log_softmax(actor.of_slots(hand[rows]), is_open[rows]))

        def tiles_of(rows: IntArray, slots: IntArray) -> Float32Array:
            scores = actor.of_tiles(looked.features[rows], hand[rows, slots][:, None])
            return _as_array(masked_log_softmax(scores[:, 0], legal[rows, slots]))

        gate = masked_log_softmax(*gate_stage(actor.to_act(looked), mask[:, 0], is_open))
        return choose_in_stages(
            _as_array(gate), masks, NUM_SLOTS, slots_of=slots_of, tiles_of=tiles_of, numbers=numbers
        )

    def values(self, observations: tuple[Array, ...]) -> npt.NDArray[np.float32]:
        """Return ``V(s)`` of each row. Shape ``(n,)``."""
        return self._values(self._cells(observations))

    @torch.inference_mode()
    def _values(self, cells: Cells) -> Float32Array:
        return _as_array(self.critic(cells))

    def prepare(self, observations: tuple[Array, ...]) -> tuple[Tensor, ...]:
        """Return what is the same for every weight, in the order of ``Cells``."""
        return self._cells(observations)

    def _cells(self, observations: tuple[Array, ...]) -> Cells:
        planes, vector = (self._tensor(leaf) for leaf in observations)
        return to_cells(planes, vector, self._config)

    def action_layout(self) -> IntArray:
        """Return slot, row and column of every action. Shape ``(961, 3)``."""
        slots, tiles = layout(NUM_SLOTS, NUM_TILES).T
        waits = tiles < 0
        rows, columns = np.where(waits, -1, tiles // WIDTH), np.where(waits, -1, tiles % WIDTH)
        return np.stack([slots, rows, columns], axis=1)

    def _tensor(self, array: Array) -> Tensor:
        """Move an array to the device; torch refuses to share memory that is read-only."""
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)

    def distribution(
        self, observations: tuple[Tensor, ...], masks: Tensor | None
    ) -> StagedCategorical:
        """Return how the actor would choose; see the base class."""
        if masks is None:
            raise ValueError(f"{self.uid}: observations came without masks, which it needs")
        return StagedCategorical(masked_stages(self.actor(Cells(*observations)), masks), masks)

    def evaluate_values(self, observations: tuple[Tensor, ...]) -> Tensor:
        """Return ``V(s)`` of each row, with gradients. Shape ``(n,)``."""
        values: Tensor = self.critic(Cells(*observations))
        return values


def _as_array(tensor: Tensor) -> Float32Array:
    array: Float32Array = tensor.numpy(force=True)
    return array


def space_problems(spaces: Spaces, config: ArenaPolicyConfig) -> list[str]:
    """List why the arena policy cannot play in these spaces; empty if it can.

    Args:
        spaces: Of the environments.
        config: Its settings.

    Returns:
        Sentences.
    """
    found = _observation_problems(spaces.observation, config)
    if not (isinstance(spaces.action, DiscreteSpec) and spaces.action.n == NUM_ACTIONS):
        found.append(
            f"action space: got {_action(spaces.action)}, this policy takes Discrete"
            f"({NUM_ACTIONS}): to wait, or one of {NUM_SLOTS} slots on one of {HEIGHT} × {WIDTH} "
            "tiles"
        )
    if not spaces.masks:
        found.append(
            "action masks: the environments send none, this policy needs the legal actions of "
            "every observation"
        )
    return found


def _observation_problems(space: SpaceSpec, config: ArenaPolicyConfig) -> list[str]:
    parts = dict(space.items) if isinstance(space, DictSpec) else {}
    planes, vector = parts.get("planes"), parts.get("vector")
    if parts.keys() != {"planes", "vector"}:
        got = f"a Dict of {', '.join(parts)}" if parts else _described(space)
        return [f"observation space: got {got}, {_EXPECTED}"]
    found = []
    if not (_is_box(planes, "uint8", 3) and planes.shape[1:] == (HEIGHT, WIDTH)):
        found.append(f"observation planes: got {_described(planes)}, {_EXPECTED}")
    elif max(config.card_planes, default=0) >= planes.shape[0]:
        found.append(
            f"--policy.card-planes: got {config.card_planes}, the observations have planes 0 to "
            f"{planes.shape[0] - 1}"
        )
    if not _is_box(vector, "float32", 1):
        found.append(f"observation vector: got {_described(vector)}, {_EXPECTED}")
    elif config.hand_start + NUM_SLOTS * config.hand_names > vector.shape[0]:
        found.append(
            f"--policy.hand-start, --policy.hand-names: got {config.hand_start} and "
            f"{config.hand_names}; {NUM_SLOTS} slots of that many entries do not fit into the "
            f"vector's {vector.shape[0]}"
        )
    return found


def _is_box(space: SpaceSpec | None, dtype: str, dimensions: int) -> TypeGuard[BoxSpec]:
    return (
        isinstance(space, BoxSpec)
        and space.dtype == dtype
        and len(space.shape) == dimensions
        and math.prod(space.shape) > 0
    )


def _action(space: SpaceSpec) -> str:
    return f"Discrete({space.n})" if isinstance(space, DiscreteSpec) else _described(space)


def _described(space: SpaceSpec | None) -> str:
    name = type(space).__name__.removesuffix("Spec")
    return f"{name} of {space.dtype} {space.shape}" if isinstance(space, BoxSpec) else name
