"""Declarations of what PPO reports only with some of its settings, or of some policies."""

from __future__ import annotations

from algorithms.metric_spec import MetricSpec

FROZEN = "the actor is frozen, or every gradient step was skipped"
SKIPPED = "every gradient step was skipped"
OF_ACTOR = (
    "frames trained on; with --algo.forced-rows critic_only those of more than one legal action"
)
OF_CHOICES = "frames trained on with more than one legal action"

_STAGES = {
    "gate": "Entropy of whether to act",
    "slot": "Entropy of what to act with, times the probability of acting",
    "tile": "Entropy of where to act, times the probability of acting",
}
UNSCHEDULED = "it has a schedule only if one is set"
_NO_FREEZE = "no --algo.freeze-actor-iterations or --algo.freeze-actor-until is set"
_ONE_OPTIMIZER = "--algo.separate-optimizers is off"

OPTION_STEP_METRICS = (
    *(
        MetricSpec(
            key=f"ppo/entropy_{stage}",
            unit="nat",
            meaning=f"{meaning}; with the other stages' it adds up to the entropy.",
            statistic="mean over gradient steps",
            absent_when=f"the policy does not choose in stages, {FROZEN}",
            population=OF_ACTOR,
        )
        for stage, meaning in _STAGES.items()
    ),
    MetricSpec(
        key="ppo/noop_entropy",
        unit="nat",
        meaning="Entropy of the question «action 0, the no-op, or any other»; 0.69 is undecided.",
        statistic="mean over gradient steps",
        absent_when=f"--algo.noop-ent-coef is 0 at start and end, {FROZEN}",
        population=OF_CHOICES,
    ),
    MetricSpec(
        key="ppo/grad_norm_actor",
        unit="1",
        meaning="Norm of the actor's gradient before it is clipped.",
        statistic="mean over gradient steps",
        absent_when=f"{_ONE_OPTIMIZER}, {FROZEN}",
        population=OF_ACTOR,
    ),
    MetricSpec(
        key="ppo/grad_norm_critic",
        unit="1",
        meaning="Norm of the critic's gradient before it is clipped.",
        statistic="mean over gradient steps",
        absent_when=f"{_ONE_OPTIMIZER}, {SKIPPED}",
    ),
)
"""What some settings add to every gradient step."""

OPTION_METRICS = (
    MetricSpec(
        key="ppo/critic_learning_rate",
        unit="1",
        meaning="Step size of the critic in this learn step.",
        statistic="last",
        may_be_constant=UNSCHEDULED,
        absent_when=_ONE_OPTIMIZER,
    ),
    MetricSpec(
        key="ppo/noop_ent_coef",
        unit="1",
        meaning="Weight of the bonus for being undecided whether to act in this learn step.",
        statistic="last",
        may_be_constant=UNSCHEDULED,
        absent_when="--algo.noop-ent-coef is 0 at start and end",
    ),
    MetricSpec(
        key="ppo/gamma",
        unit="1",
        meaning="Discount per frame in this learn step.",
        statistic="last",
        absent_when="--algo.gamma-end is None",
    ),
    MetricSpec(
        key="ppo/iterations_since_unfreeze",
        unit="iteration",
        meaning="Learn steps since the actor was unfrozen: 1 in the first that moved it.",
        statistic="last",
        absent_when=f"{_NO_FREEZE}, or the actor is frozen",
    ),
    MetricSpec(
        key="ppo/ev_at_unfreeze",
        unit="1",
        meaning="As ppo/explained_variance, when the actor was unfrozen.",
        statistic="last",
        absent_when="it is not the first learn step after a freeze, or the returns do not vary",
        may_be_constant="it is written once",
        healthy=(0.3, 1.0),
    ),
    MetricSpec(
        key="ppo/choice_frac",
        unit="1",
        meaning="Share of frames with more than one legal action, from which the actor learns.",
        absent_when="--algo.forced-rows is all",
    ),
)
"""What some settings add to a learn step."""
