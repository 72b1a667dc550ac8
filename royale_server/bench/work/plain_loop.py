"""The in-process loop without learning: what a user has who moves nothing to another process."""

from __future__ import annotations

from royale_server.bench.work.networks import Towers
from royale_server.bench.work.rollout import Rollout, one_thread
from royale_server.bench.work.timing import rate


def measure(*, num_envs: int, steps: int, vectorization: str, seconds: float) -> dict[str, float]:
    """Return frames per second of collecting alone."""
    one_thread()
    rollout = Rollout(num_envs, steps, vectorization, Towers())
    t = -1

    def step() -> int:
        nonlocal t
        t = (t + 1) % steps
        return rollout.step(t)

    return {"collect_per_s": rate(step, seconds)}
