"""An algorithm that takes the time of a real one and learns nothing.

For checking connections, dispatch and patience without a model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from algorithms.base import Inference, Learner, LearnerState, Policy
from algorithms.config import RESTORE_ALL
from algorithms.dummy.config import DummyConfig
from algorithms.errors import LearnAborted, RestoreError
from algorithms.noise import Noise
from algorithms.storage import Array, BoolArray, IntArray, RolloutStorage

_POLL_S = 0.05  # longest time until an abort of a pretended learn step is noticed


class DummyLearner(Learner):
    """Collects frames, waits, and forgets them.

    Args:
        config: Settings.
        policy: Any policy; it stays as it is.
        seed: Kept; nothing here is random.
    """

    uid = "dummy"
    saves = False
    config: DummyConfig

    def __init__(self, config: DummyConfig, policy: Policy, *, seed: int) -> None:
        super().__init__(config, SlowPolicy(policy, config.infer_s), seed=seed)

    def learn(
        self,
        storage: RolloutStorage,
        cells: IntArray,
        *,
        should_abort: Callable[[], bool],
        progress: Callable[[int, int, dict[str, float]], None],
    ) -> dict[str, float]:
        """Wait for ``learn_s`` seconds; see the base class."""
        end_s = time.monotonic() + self.config.learn_s
        never = threading.Event()
        while (left_s := end_s - time.monotonic()) > 0:
            if should_abort():
                raise LearnAborted(f"a pretended learn step was aborted {left_s:.1f} s early")
            never.wait(min(left_s, _POLL_S))
        progress(1, 1, {})
        self.policy_version += 1
        return {}

    def state(self) -> LearnerState:
        """Return the counters; there is nothing else."""
        return LearnerState(model={}, optimizer={}, counters=self._counters())

    def load_state(self, state: LearnerState, restore: str = RESTORE_ALL) -> None:
        """Take over counters; see the base class."""
        problems = self._check_counters(state.counters)
        if restore != RESTORE_ALL:
            problems.append(f"the dummy algorithm has no weights to restore by mode {restore}")
        if problems or state.model:
            raise RestoreError(
                f"a dummy run (mode {restore})", unexpected=sorted(state.model), other=problems
            )
        self._load_counters(state.counters)


class SlowPolicy(Policy):
    """Another policy that takes some time for every batch.

    Args:
        policy: Does the work.
        infer_s: Seconds added to every batch.
    """

    uid = "slow-policy"

    def __init__(self, policy: Policy, infer_s: float) -> None:
        super().__init__()
        self.policy = policy
        self.spaces = policy.spaces
        self.step_state = policy.step_state
        self._infer_s = infer_s

    def act(
        self,
        observations: tuple[Array, ...],
        masks: BoolArray | None,
        noise: Noise,
        deterministic: bool = False,
    ) -> Inference:
        """Wait, then let the policy choose; see the base class."""
        self._wait()
        return self.policy.act(observations, masks, noise, deterministic)

    def values(self, observations: tuple[Array, ...]) -> npt.NDArray[np.float32]:
        """Return the policy's values. Shape ``(n,)``."""
        return self.policy.values(observations)

    def _wait(self) -> None:
        if self._infer_s > 0:
            threading.Event().wait(self._infer_s)
