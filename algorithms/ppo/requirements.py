"""What some settings of PPO need of a policy and of its environments."""

from __future__ import annotations

from algorithms.base import TrainablePolicy
from algorithms.ppo.config import PPOConfig
from algorithms.split_policy import SplitPolicy
from royale_client.wire.spaces import DiscreteSpec


def misfits(config: PPOConfig, policy: TrainablePolicy) -> list[str]:
    """List why a policy cannot be trained with these settings, one sentence each.

    Args:
        config: Settings without problems of their own.
        policy: What is to be trained.

    Returns:
        Nothing if it can.
    """
    found = []
    spares_forced = config.forced_rows == "critic_only"
    of_halves = {
        "--algo.separate-optimizers": config.separate_optimizers,
        "--algo.forced-rows critic_only": spares_forced,
        "--algo.noop-ent-coef": config.has_noop_bonus,
    }
    asked = ", ".join(flag for flag, is_set in of_halves.items() if is_set)
    if asked and not isinstance(policy, SplitPolicy):
        found.append(
            f"{asked}: got policy {policy.uid}, expected one whose actor and critic can be asked "
            "apart (a SplitPolicy, such as mlp-policy)"
        )
    if spares_forced and not policy.spaces.masks:
        found.append(
            "--algo.forced-rows: got critic_only, but the environments send no masks of legal "
            "actions; use all"
        )
    has_noop = isinstance(policy.spaces.action, DiscreteSpec) and policy.spaces.masks
    if config.has_noop_bonus and not has_noop:
        kind = type(policy.spaces.action).__name__.removesuffix("Spec")
        masks = "with" if policy.spaces.masks else "without"
        found.append(
            f"--algo.noop-ent-coef: got actions of {kind} {masks} masks, expected one Discrete "
            "action with masks, whose action 0 is the no-op; use 0"
        )
    return found
