"""The algorithm `eval`: takes weights and keeps them."""

from __future__ import annotations

from collections.abc import Callable

from algorithms.base import Learner, LearnerState
from algorithms.config import RESTORE_ALL
from algorithms.errors import UpdateError
from algorithms.evaluation.config import EvalConfig
from algorithms.restore import RestorePlan, plan_policy
from algorithms.storage import IntArray, RolloutStorage


class EvalLearner(Learner):
    """Plays with the weights of a checkpoint, whose version it reports; never learns."""

    uid = "eval"
    saves = False
    evaluates = True
    config: EvalConfig

    def frames_wanted(self) -> int | None:
        """Return the least there is: no client trains, so none is collected."""
        return 1

    def learn(
        self,
        storage: RolloutStorage,
        cells: IntArray,
        *,
        should_abort: Callable[[], bool],
        progress: Callable[[int, int, dict[str, float]], None],
    ) -> dict[str, float]:
        """Refuse: nothing is collected, so nothing can be due.

        Raises:
            UpdateError: Always.
        """
        raise UpdateError("a learn step is due in a server that only evaluates")

    def state(self) -> LearnerState:
        """Return the counters; the weights are another run's."""
        return LearnerState(model={}, optimizer={}, counters=self._counters())

    def load_state(self, state: LearnerState, restore: str = RESTORE_ALL) -> None:
        """Take weights and their version, of whatever algorithm; see the base class."""
        plan = RestorePlan(restore)
        weights = plan_policy(plan, self.policy, state.model)
        plan.raise_problems()
        weights.apply()
        self.policy_version = int(state.counters.get("policy_version", 0))
