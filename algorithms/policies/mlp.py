"""The fully connected policy: an actor and a critic over one vector, sharing no weight.

Handles vectors, nested vectors and choices as observations, and discrete, multi-discrete and
continuous actions. Images and texts are other policies' work. Letters: n rows, D columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from algorithms.base import Inference
from algorithms.config import refuse
from algorithms.distributions import Distribution
from algorithms.noise import Noise
from algorithms.normalization import ObservationNormalizer
from algorithms.policies.accelerator import DeviceRunner
from algorithms.policies.config import MLPPolicyConfig
from algorithms.policies.encoding import ObservationEncoder, observation_problems
from algorithms.policies.heads import action_problems, make_head
from algorithms.policies.tower import Matrix, Tower
from algorithms.spaces import ArraySpec, Spaces
from algorithms.split_policy import SplitPolicy
from algorithms.storage import Array, BoolArray
from royale_client.wire.spaces import leaves

_ACTOR_GAIN = 0.01  # nearly equal logits and means near 0 at the start
_CRITIC_GAIN = 1.0


@dataclass(slots=True)
class _Acted:
    """What was chosen and from what: all that judging it needs."""

    policy: MLPPolicy
    matrix: Matrix
    """What the towers saw. Shape ``(n, D)``."""
    outputs: Matrix
    """The actor's. Shape ``(n, head.num_outputs)``."""
    values: Matrix | None
    """The critic's, ``(n, 1)``; None if it was not asked yet."""
    masks: BoolArray | None
    """Legal actions, or None. Shape ``(n, mask_size)``."""
    samples: Array
    """What was chosen, as it is stored. Shape ``(n, …)``."""

    @classmethod
    def joined(cls, parts: Sequence[_Acted]) -> _Acted:
        """Lay batches one after the other."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        joined = np.concatenate
        return cls(
            policy=first.policy,
            matrix=joined([part.matrix for part in parts]),
            outputs=joined([part.outputs for part in parts]),
            values=None if first.values is None else joined([part.values for part in parts]),
            masks=None if first.masks is None else joined([part.masks for part in parts]),
            samples=joined([part.samples for part in parts]),
        )

    def __call__(self) -> dict[str, Array]:
        """Judge it."""
        values = self.values
        if values is None:
            values = self.policy.infer(self.matrix, self.policy.critic)[0]
        log_prob = self.policy.head.log_prob(self.outputs, self.masks, self.samples)
        return {"log_prob": log_prob, "value": values.reshape(-1)}


class MLPPolicy(SplitPolicy):
    """Actor and critic as towers of linear layers.

    Weights are initialised orthogonally by torch's global generator: seed it first.

    Args:
        config: Settings.
        spaces: Observation and action space.
        device: Where the weights live.

    Raises:
        ConfigError: If a space does not fit, naming each leaf that does not.
    """

    uid = "mlp-policy"

    def __init__(
        self, config: MLPPolicyConfig, spaces: Spaces, *, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        problems = observation_problems(spaces.observation)
        refuse(self.uid, problems + action_problems(spaces.action, config.box_actions))
        self.spaces = spaces
        self._encoder = ObservationEncoder(spaces.observation)
        self._normalizer = (
            ObservationNormalizer(leaves(spaces.observation), config.observation_clip)
            if config.normalize_observations
            else None
        )
        self.head = make_head(spaces.action, config.box_actions, config.log_std_init)
        width, sizes = self._encoder.width, config.hidden_sizes
        actor_widths = [width, *sizes, self.head.num_outputs]
        critic_widths = [width, *(config.critic_hidden_sizes or sizes), 1]
        self.actor = Tower(actor_widths, config.activation, _ACTOR_GAIN)
        self.critic = Tower(critic_widths, config.activation, _CRITIC_GAIN)
        self.step_state = {
            "action": self.head.stored,
            "log_prob": ArraySpec((), np.dtype(np.float32)),
            "value": ArraySpec((), np.dtype(np.float32)),
        }
        self.to(device)
        self._device = torch.device(device)
        self._precision = config.precision
        on_arrays = self._device.type == "cpu" and config.precision == "float32"
        self._runner = None if on_arrays else DeviceRunner(self._device, width, self._forward)

    def act(
        self,
        observations: tuple[Array, ...],
        masks: BoolArray | None,
        noise: Noise,
        deterministic: bool = False,
    ) -> Inference:
        """Choose an action for each row; see the base class."""
        matrix = self._encode(observations)
        outputs, values = self._actor_and_critic(matrix)
        samples = self.head.sample(outputs, masks, noise, deterministic=deterministic)
        actions = self.head.to_environment(samples)
        acted = _Acted(self, matrix, outputs, values, masks, samples)
        return Inference(actions, {"action": samples}, acted)

    def complete(self, inferences: Sequence[Inference]) -> dict[str, Array]:
        """Return the step state of several batches, judged as one; see the base class."""
        acted = _Acted.joined([cast("_Acted", inference.later) for inference in inferences])
        return {"action": acted.samples, **acted()}

    def _actor_and_critic(self, matrix: Matrix) -> tuple[Matrix, Matrix | None]:
        """Run the actor, and the critic where one way to a device serves both."""
        if self._runner is None:
            return self.infer(matrix, self.actor)[0], None
        outputs, values = self.infer(matrix, self.actor, self.critic)
        return outputs, values

    def values(self, observations: tuple[Array, ...]) -> npt.NDArray[np.float32]:
        """Return ``V(s)`` of each row. Shape ``(n,)``."""
        (values,) = self.infer(self._encode(observations), self.critic)
        return values.reshape(-1)

    def prepare(self, observations: tuple[Array, ...]) -> tuple[Tensor, ...]:
        """Return one matrix of the encoded, normalised observations. Shape ``(n, D)``."""
        return (torch.from_numpy(self._encode(observations)).to(self._device),)

    def _encode(self, observations: tuple[Array, ...]) -> Matrix:
        if self._normalizer is not None:
            observations = self._normalizer.normalize(observations)
        return self._encoder.encode(observations)

    def infer(self, matrix: Matrix, *towers: Tower) -> list[Matrix]:
        """Run towers without gradients, where the weights are."""
        if self._runner is not None:
            with torch.inference_mode():
                return self._runner.run(matrix, *towers)
        return [tower.forward_arrays(matrix) for tower in towers]

    def _forward(self, tower: Tower, rows: Tensor) -> Tensor:
        """Run a tower in the wanted precision. A cache of casts would outlive the weights."""
        if self._precision == "float32":
            return tower.forward(rows)
        with torch.autocast(rows.device.type, torch.bfloat16, cache_enabled=False):
            return tower.forward(rows).float()

    def distribution(self, observations: tuple[Tensor, ...], masks: Tensor | None) -> Distribution:
        """Return how the actor would choose; see the base class."""
        (matrix,) = observations
        return self.head.distribution(self._forward(self.actor, matrix), masks)

    def evaluate_values(self, observations: tuple[Tensor, ...]) -> Tensor:
        """Return ``V(s)`` of each row, with gradients. Shape ``(n,)``."""
        (matrix,) = observations
        return self._forward(self.critic, matrix)[:, 0]

    def actor_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the actor and of the action head."""
        return [*self.actor.parameters(), *self.head.parameters()]

    def update_normalizers(self, observations: tuple[Array, ...]) -> None:
        """Let the observation statistics see the frames of an iteration."""
        if self._normalizer is not None:
            self._normalizer.update(observations)

    def normalizer_state(self) -> dict[str, Array]:
        """Return the observation statistics; empty without normalisation."""
        return {} if self._normalizer is None else self._normalizer.state()

    def load_normalizer_state(self, state: Mapping[str, Array]) -> None:
        """Take over saved observation statistics."""
        if self._normalizer is not None:
            self._normalizer.load_state(state)
