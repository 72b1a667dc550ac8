"""The policies, algorithms and alarms that come with Royale.

Descriptions only: no policy and no algorithm is imported here.
"""

from __future__ import annotations

from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.registry import AlgorithmEntry, PolicyEntry, Registry

POLICIES = (
    PolicyEntry(
        uid="mlp-policy",
        summary="actor and critic networks for vectors, nested vectors and discrete observations",
        config="algorithms.policies.config:MLPPolicyConfig",
        variants="algorithms.policies.config:MLP_VARIANTS",
        implementation="algorithms.policies.mlp:MLPPolicy",
    ),
    PolicyEntry(
        uid="arena-policy",
        summary="residual networks over 20 × 12 tiles, one of 961 masked actions chosen in stages",
        config="algorithms.policies.config:ArenaPolicyConfig",
        variants="algorithms.policies.config:ARENA_VARIANTS",
        implementation="algorithms.policies.arena:ArenaPolicy",
    ),
    PolicyEntry(
        uid="dummy-policy",
        summary="random legal actions, no network: checks a connection without a model",
        config="algorithms.policies.config:DummyPolicyConfig",
        variants="algorithms.policies.config:DUMMY_VARIANTS",
        implementation="algorithms.policies.dummy:DummyPolicy",
    ),
)

ALGORITHMS = (
    AlgorithmEntry(
        uid="ppo",
        summary="clipped proximal policy optimisation, for discrete and continuous actions",
        config="algorithms.ppo.config:PPOConfig",
        variants="algorithms.ppo.config:VARIANTS",
        implementation="algorithms.ppo.learner:PPO",
        fits=("mlp-policy", "arena-policy"),
    ),
    AlgorithmEntry(
        uid="dummy",
        summary="pretends to infer and learn for a set time: checks the whole loop without a model",
        config="algorithms.dummy.config:DummyConfig",
        variants="algorithms.dummy.config:VARIANTS",
        implementation="algorithms.dummy.learner:DummyLearner",
        fits=("dummy-policy", "mlp-policy", "arena-policy"),
    ),
    AlgorithmEntry(
        uid="eval",
        summary="plays rounds of evaluation with the weights of a checkpoint, and ends",
        config="algorithms.evaluation.config:EvalConfig",
        variants="algorithms.evaluation.config:VARIANTS",
        implementation="algorithms.evaluation.learner:EvalLearner",
        fits=("mlp-policy", "arena-policy"),
    ),
)


def builtin_registry() -> Registry:
    """A registry with the built-in entries and the names of installed plug-ins."""
    registry = Registry()
    for policy in POLICIES:
        registry.add_policy(policy)
    for algorithm in ALGORITHMS:
        registry.add_algorithm(algorithm)
    for alarm in BUILT_IN_ALARMS:
        registry.add_alarm(alarm)
    registry.add_installed_plugins()
    return registry
