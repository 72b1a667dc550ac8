"""Inference and learning alone: the product's policy and learner, and the lean ones.

Both learn from the same frames, laid out as each of them wants.
"""

from __future__ import annotations

import numpy as np

from algorithms.noise import Noise, slot_key
from algorithms.policies.config import MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.ppo.config import PPOConfig
from algorithms.ppo.learner import PPO
from algorithms.spaces import Spaces
from algorithms.storage import RolloutStorage
from royale_client.wire.spaces import BoxSpec, DiscreteSpec, leaves
from royale_server.bench import yardstick
from royale_server.bench.work import lean_ppo
from royale_server.bench.work.networks import NUM_ACTIONS, NUM_OBSERVATIONS, Towers
from royale_server.bench.work.rollout import Rollout, one_thread
from royale_server.bench.work.timing import microseconds_a_call

SPACES = Spaces(
    observation=BoxSpec(-np.inf, np.inf, (NUM_OBSERVATIONS,), "float32"),
    action=DiscreteSpec(NUM_ACTIONS),
    masks=False,
)


def measure(*, num_envs: int, seconds: float) -> dict[str, float]:
    """Return microseconds per batch of ``num_envs`` rows and milliseconds per learn step."""
    one_thread()
    rollout = Rollout(num_envs, yardstick.STEPS, "sync", Towers(yardstick.WIDTH))
    rollout.collect()
    policy = MLPPolicy(MLPPolicyConfig(), SPACES)
    observations = rollout.now
    noise = _noise(num_envs)
    part = seconds / 4
    return {
        "act_us": microseconds_a_call(
            lambda: policy.act((observations,), None, noise).complete(), part
        ),
        "lean_act_us": microseconds_a_call(lambda: rollout.net.sample(observations), part),
        "learn_ms": _learn_us(policy, rollout, part) / 1000,
        "lean_learn_ms": _lean_learn_us(rollout, part) / 1000,
    }


def _learn_us(policy: MLPPolicy, rollout: Rollout, seconds: float) -> float:
    config = PPOConfig(
        total_timesteps=10**15,
        frames_per_iteration=rollout.rewards.size,
        num_epochs=yardstick.EPOCHS,
        minibatch_size=None,
        num_minibatches=yardstick.MINIBATCHES,
        learning_rate=yardstick.STAND_STILL,  # the frames stay those of the policy
        learning_rate_schedule="constant",
        gamma=yardstick.GAMMA,
        gae_lambda=yardstick.GAE_LAMBDA,
        clip_coef=yardstick.CLIP,
        ent_coef=yardstick.ENTROPY,
    )
    learner = PPO(config, policy, seed=1)
    storage = _storage(policy, rollout)
    cells = np.arange(storage.capacity)

    def learn() -> None:
        learner.learn(storage, cells, should_abort=lambda: False, progress=lambda *_: None)

    return microseconds_a_call(learn, seconds)


def _storage(policy: MLPPolicy, rollout: Rollout) -> RolloutStorage:
    """Lay a rollout out as the server would have."""
    steps, num_envs = rollout.rewards.shape
    storage = RolloutStorage(
        steps * num_envs, leaves(SPACES.observation), policy.step_state, mask_size=None
    )
    slots = np.arange(num_envs)
    for t in range(steps):
        cells = slots + t * num_envs
        storage.assign(cells, slots, np.full(num_envs, t))
        storage.observations[0][cells] = rollout.observations[t]
        inference = policy.act((rollout.observations[t],), None, _noise(num_envs, t))
        storage.write_step_state(cells, inference.complete())
        storage.add_rewards(cells, rollout.rewards[t].astype(np.float64))
        ended, terminated = rollout.ended[t], rollout.terminated[t]
        storage.finish(cells, terminated, ended & ~terminated)
        storage.set_bootstrap(cells, np.zeros(num_envs, np.float32))
    return storage


def _lean_learn_us(rollout: Rollout, seconds: float) -> float:
    optimizer = lean_ppo.make_optimizer(rollout.net)
    for group in optimizer.param_groups:
        group["lr"] = yardstick.STAND_STILL
    return microseconds_a_call(lambda: lean_ppo.update(rollout.net, optimizer, rollout), seconds)


def _noise(rows: int, step: int = 0) -> Noise:
    keys = np.array([slot_key(0, "bench", slot) for slot in range(rows)], np.uint64)
    return Noise(keys, np.zeros(rows, np.uint64), np.full(rows, step, np.uint64))
