"""`serve_env`, the door for a program that has a Gymnasium environment, and what it rests on.

`run_drivers` takes drivers to a finished client, for this door and for the command alike. Nothing
here parses a command line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from royale_client.driver import EnvDriver
from royale_client.hello import make_hello
from royale_client.leaving import LeaveRequest, leaving_on_signals
from royale_client.loop import EnvLoop, Outcome
from royale_client.reconnect import Patience
from royale_client.runner import ClientRunner
from royale_client.transport import ServerAddress
from royale_client.websocket_transport import connect
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.limits import Limits

if TYPE_CHECKING:
    import gymnasium

    from royale_client.driver_gymnasium import MaskChoice

logger = logging.getLogger(__name__)

DEFAULT_URL = "ws://127.0.0.1:8000"

Role: TypeAlias = Literal["train", "eval"]


def run_drivers(
    drivers: Sequence[EnvDriver],
    address: ServerAddress,
    *,
    env_id: str,
    facts: Mapping[str, Any],
    client_name: str | None = None,
    role: Role = "train",
    num_episodes: int | None = None,
    seed: int | None = None,
    patience: Patience | None = None,
    float16_observations: bool = False,
    leave: LeaveRequest | None = None,
) -> Outcome:
    """Run a client over real connections until it ends, and log what it did.

    Args:
        drivers: One per group, one or two.
        address: Where the server is.
        env_id: Name of the environment.
        facts: What else tells two environments of that name apart; plain data.
        client_name: Stable name; None builds one from host and environment.
        role: Whether the frames are for training or for evaluation.
        num_episodes: Episodes after which to leave; None for no end.
        seed: First slot's seed; None takes the server's.
        patience: How long to go on trying.
        float16_observations: Send wider floats of observations as float16.
        leave: Flag that ends the client in order.

    Raises:
        RoyaleError: Why it ended if not in order; see `exit_code`.
    """
    leave = leave or LeaveRequest()
    limits = Limits()
    hello = make_hello(
        drivers,
        client_name=client_name,
        env_id=env_id,
        facts=facts,
        role=role,
        float16_observations=float16_observations,
    )
    loop = EnvLoop(
        drivers,
        hello,
        num_episodes=num_episodes,
        seed=seed,
        wants_to_leave=leave,
        limits=limits,
    )
    runner = ClientRunner(loop, lambda: connect(address, limits), patience or Patience(), leave)
    try:
        outcome = runner.run()
    finally:
        if loop.timings.totals.frames:
            logger.info("in all %s", loop.timings.overall(time.monotonic()))
    logger.info("%s", outcome.message)
    return outcome


def serve_env(
    env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any],
    url: str = DEFAULT_URL,
    *,
    client_name: str | None = None,
    role: Role = "train",
    num_episodes: int | None = None,
    seed: int | None = None,
    patience: Patience | None = None,
    token: str | None = None,
    proxy: str | None = None,
    tls_ca: str | None = None,
    autoreset_mode: str | None = None,
    action_mask: MaskChoice = "auto",
    episode_metrics: Sequence[EpisodeMetric] = (),
    float16_observations: bool = False,
) -> Outcome:
    """Let a server train on an environment until one of the two ends it.

    Ctrl-C reports the last step, says goodbye and then raises KeyboardInterrupt. The environment is
    not closed.

    Args:
        env: A Gymnasium environment or vector environment of any autoreset rule.
        url: ``ws://HOST:PORT`` or ``wss://HOST:PORT`` of the server, or ``unix:///PATH``.
        client_name: Stable name; None builds one from host and environment.
        role: ``train`` or ``eval``.
        num_episodes: Episodes after which to leave; None for no end.
        seed: First environment's seed; None takes the server's.
        patience: How long to go on trying; ``Patience(for_ever=True)`` also waits for further runs.
        token: Token of the server, if it wants one.
        proxy: Proxy to go through; None connects directly.
        tls_ca: PEM file of who may vouch for a ``wss://`` server; None takes the system's.
        autoreset_mode: Rule of a vector environment whose metadata do not say it: ``next_step``,
            ``same_step`` or ``disabled``.
        action_mask: ``auto`` uses masks if the first reset gives them, ``on`` insists, ``off``
            ignores them.
        episode_metrics: Numbers in the last info of an episode to report with it.
        float16_observations: Send float32 and float64 observations as float16: half or a quarter of
            the bytes, 3 digits; a number beyond 65504 ends the client.

    Returns:
        How it ended, if in order.

    Raises:
        RoyaleError: If the server refused the client, could not be reached, or was lost.
        Exception: Whatever the environment raises.

    Example:
        >>> serve_env(gymnasium.make("CartPole-v1"), "ws://192.0.2.7:8000")  # doctest: +SKIP
    """
    from royale_client.envs.gymnasium_envs import driver_for, env_name

    driver = driver_for(env, autoreset_mode, action_mask, episode_metrics)
    leave = LeaveRequest()
    with leaving_on_signals(leave):
        outcome = run_drivers(
            [driver],
            ServerAddress(url=url, token=token, proxy=proxy, tls_ca=tls_ca),
            env_id=env_name(env),
            facts={"class": type(env.unwrapped).__qualname__},
            client_name=client_name,
            role=role,
            num_episodes=num_episodes,
            seed=seed,
            patience=patience,
            float16_observations=float16_observations,
            leave=leave,
        )
    if leave.is_made:
        raise KeyboardInterrupt
    return outcome
