"""The one set of hyperparameters that everything is compared with, in everybody's words.

CartPole-v1, two towers of 64 × 64 with tanh, 128 steps an environment and iteration, 4 passes of 4
minibatches, Adam 1e-3, gamma 0.99, lambda 0.95, clip 0.2, entropy 0.01.
"""

from __future__ import annotations

from typing import Any, Final

ENV_ID: Final = "CartPole-v1"
STEPS: Final = 128
EPOCHS: Final = 4
MINIBATCHES: Final = 4
LEARNING_RATE: Final = 1e-3
GAMMA: Final = 0.99
GAE_LAMBDA: Final = 0.95
CLIP: Final = 0.2
ENTROPY: Final = 0.01
VALUE: Final = 0.5
MAX_GRAD_NORM: Final = 0.5
ADAM_EPS: Final = 1e-5
WIDTH: Final = 64

STAND_STILL: Final = 1e-12
"""Learning rate at which a policy stays what it was: its episodes stay as short as those of a loop
that does not learn at all."""

AS_OPTIONS: Final[dict[str, Any]] = {
    "steps": STEPS,
    "epochs": EPOCHS,
    "minibatches": MINIBATCHES,
    "learning_rate": LEARNING_RATE,
    "gamma": GAMMA,
    "gae_lambda": GAE_LAMBDA,
    "clip": CLIP,
    "entropy": ENTROPY,
    "value": VALUE,
    "max_grad_norm": MAX_GRAD_NORM,
    "adam_eps": ADAM_EPS,
    "width": WIDTH,
}
"""For workers that do not import this."""


def server_flags(num_envs: int, *, learns: bool) -> tuple[str, ...]:
    """Flags of ``royale-server mlp-policy default ppo default`` for these settings.

    Args:
        num_envs: Environments of all clients together.
        learns: False: one pass at a learning rate of next to nothing.
    """
    flags = {
        "frames-per-iteration": STEPS * num_envs,
        "num-epochs": EPOCHS if learns else 1,
        "minibatch-size": "None",
        "num-minibatches": MINIBATCHES,
        "learning-rate": LEARNING_RATE if learns else STAND_STILL,
        "learning-rate-schedule": "constant",
        "gamma": GAMMA,
        "gae-lambda": GAE_LAMBDA,
        "clip-coef": CLIP,
        "ent-coef": ENTROPY,
        "vf-coef": VALUE,
        "max-grad-norm": MAX_GRAD_NORM,
        "adam-eps": ADAM_EPS,
    }
    return tuple(word for name, value in flags.items() for word in (f"--algo.{name}", str(value)))
