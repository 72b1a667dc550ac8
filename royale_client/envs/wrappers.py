"""Wrappers around single Gymnasium environments that the client puts on by itself.

None of them changes what an observation is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium

from royale_client.driver_infos import MASK_KEY, SEALED_KEY, SealedMetrics, mask_row
from royale_client.wire.errors import ConfigError

AnyEnv = gymnasium.Env[Any, Any]
AnyWrapper = gymnasium.Wrapper[Any, Any, Any, Any]


class FrameSkip(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats every action and sums the rewards, until the episode ends.

    Args:
        env: The environment.
        num_steps: Environment steps per action.
    """

    def __init__(self, env: AnyEnv, num_steps: int) -> None:
        if num_steps < 1:
            raise ConfigError(f"--frame-skip {num_steps}: expected at least 1 step per action")
        super().__init__(env)
        self._num_steps = num_steps

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:  # noqa: ANN401 - signature of gymnasium.Env
        """Take up to ``num_steps`` environment steps with one action."""
        total = 0.0
        for _ in range(self._num_steps):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class InfoFilter(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets only what the client needs of an info pass, in a form that no info can break.

    A mask becomes a flat bool array; the metrics of an ended episode are sealed, so that merging
    the infos of many environments cannot fail on them.

    Args:
        env: The environment, with all other wrappers on.
        mask_size: Entries of a mask, or None if masks are not wanted.
        metrics: Keys to take from the info when an episode ends.
    """

    def __init__(self, env: AnyEnv, mask_size: int | None, metrics: Sequence[str]) -> None:
        super().__init__(env)
        self._mask_size = mask_size
        self._metrics = tuple(metrics)
        self._wants_nothing = mask_size is None and not self._metrics

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and filter its info."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._filtered(info, ended=False)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:  # noqa: ANN401 - signature of gymnasium.Env
        """Step the environment and filter its info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._wants_nothing or not info:
            return observation, reward, terminated, truncated, {}
        kept = self._filtered(info, ended=bool(terminated or truncated))
        return observation, reward, terminated, truncated, kept

    def _filtered(self, info: Any, *, ended: bool) -> dict[str, Any]:  # noqa: ANN401 - an environment may return anything
        kept: dict[str, Any] = {}
        if not isinstance(info, dict):
            return kept
        if self._mask_size is not None and MASK_KEY in info:
            kept[MASK_KEY] = mask_row(info[MASK_KEY], self._mask_size)
        if ended and self._metrics:
            values = {name: info[name] for name in self._metrics if name in info}
            kept[SEALED_KEY] = SealedMetrics(values)
        return kept
