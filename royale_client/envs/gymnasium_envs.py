"""The environment family `gym`: anything with a Gymnasium id, vectorised in this process.

Ended environments are reset by mask right after the step that ended them (autoreset DISABLED), so
that no step and no request is spent on a reset. Gymnasium is imported when an environment is built,
not before: `--help` does not pay for it, and a client without it still runs other families.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from royale_client.envs.provider import EnvProvider
from royale_client.envs.registry import load_object
from royale_client.wire.errors import ConfigError

if TYPE_CHECKING:
    import gymnasium

    from royale_client.driver import EnvDriver
    from royale_client.envs.wrappers import AnyEnv, AnyWrapper
    from royale_client.wire.episodes import EpisodeMetric

_INSTALL = (
    "Gymnasium is not installed: pip install 'royale-rl[gym]' (or the extra of your environments: "
    "mujoco, atari, box2d)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GymConfig:
    """Flags of `royale-env-client gym`."""

    env_id: str
    """Gymnasium id, for example CartPole-v1, or module:Name-v0 to import a package first."""
    env_kwargs: str = "{}"
    """Arguments for the environment as a JSON object, for example '{"g": 9.81}'."""
    wrapper: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """module:Class of a wrapper to put around every environment; repeat for more, inside first."""
    frame_skip: int = 1
    """Environment steps per action; rewards are summed."""
    time_limit: int | None = None
    """Environment steps after which an episode is truncated; None keeps the registered limit."""
    vectorization: Literal["sync", "vector_entry_point", "async"] = "sync"
    """sync: one after the other in this process; vector_entry_point: the environment's own vector
    class; async: one process per environment."""
    autoreset_mode: Literal["next_step", "same_step", "disabled"] | None = None
    """Autoreset rule of an environment's own vector class, if its metadata do not say."""
    action_mask: Literal["auto", "on", "off"] = "auto"
    """Masks of legal actions from info["action_mask"] or action_masks(): auto uses them if the
    first reset shows them."""
    episode_metric: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Key of a number in the last info of an episode to report with it, or KEY=UNIT; repeat for
    more."""

    def __post_init__(self) -> None:
        """Check what can be checked without the environment.

        Raises:
            ConfigError: If a value is senseless; says the right form.
        """
        if not isinstance(self.parsed_kwargs(), dict):
            raise ConfigError(
                f"--env-kwargs {self.env_kwargs!r}: expected a JSON object, as in {{}}"
            )
        for name, value in (("frame-skip", self.frame_skip), ("time-limit", self.time_limit)):
            if value is not None and value < 1:
                raise ConfigError(f"--{name} {value}: expected at least 1")
        if self.vectorization == "vector_entry_point" and (self.wrapper or self.frame_skip > 1):
            raise ConfigError(
                "--vectorization vector_entry_point takes no --wrapper and no --frame-skip: there "
                "are no single environments to wrap; use --vectorization sync"
            )

    def parsed_kwargs(self) -> Any:  # noqa: ANN401 - whatever JSON says; checked on creation
        """Return the environment's arguments.

        Raises:
            ConfigError: If they are no JSON.
        """
        try:
            return json.loads(self.env_kwargs)
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"--env-kwargs {self.env_kwargs!r} is no JSON: {error}; quote it once for the "
                "shell: --env-kwargs '{\"render_mode\": null}'"
            ) from error

    def metrics(self) -> tuple[EpisodeMetric, ...]:
        """Return the declared episode metrics."""
        from royale_client.wire.episodes import EpisodeMetric

        pairs = (entry.partition("=") for entry in self.episode_metric)
        return tuple(
            EpisodeMetric(name, unit or "1", "episodes that report it", "mean")
            for name, _, unit in pairs
        )


def make_driver(config: GymConfig, num_envs: int) -> EnvDriver:
    """Build one group of environments.

    Args:
        config: Which environment and how.
        num_envs: Number of environments in the group.

    Raises:
        ConfigError: If Gymnasium or the environment is missing, or its arguments are wrong.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise ConfigError(_INSTALL) from error
    from royale_client.driver_gymnasium import GymnasiumDriver

    try:
        env = _make_vector_env(config, num_envs)
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(_unknown_id(config.env_id, error)) from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(f"{config.env_id} needs more than is installed: {error}") from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"{config.env_id}: {error}") from error
    except (gymnasium.error.Error, TypeError, ValueError) as error:
        raise ConfigError(
            f"{config.env_id} cannot be built with --env-kwargs {config.env_kwargs}: {error}"
        ) from error
    return GymnasiumDriver(
        env,
        autoreset=config.autoreset_mode,
        action_mask=config.action_mask,
        episode_metrics=config.metrics(),
    )


def driver_for(
    env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any],
    autoreset_mode: str | None,
    action_mask: Literal["auto", "on", "off"],
    episode_metrics: Sequence[EpisodeMetric],
) -> EnvDriver:
    """Return a driver for an environment somebody else made.

    Args:
        env: A single or a vector environment.
        autoreset_mode: Rule of a vector environment whose metadata do not say it.
        action_mask: Whether to look for masks.
        episode_metrics: Numbers in the last info of an episode to report with it.

    Raises:
        ConfigError: If a space cannot travel, or the rule or the masks are unclear.
    """
    from gymnasium.vector import VectorEnv

    from royale_client.driver_gymnasium import GymnasiumDriver
    from royale_client.driver_serial import SerialVectorEnv
    from royale_client.envs.wrappers import InfoFilter
    from royale_client.space_conversion import to_spec
    from royale_client.wire.spaces import mask_size

    if isinstance(env, VectorEnv):
        vector_env = env
    else:
        size = mask_size(to_spec(env.action_space)) if action_mask != "off" else None
        filtered = InfoFilter(env, size, [metric.name for metric in episode_metrics])
        vector_env = SerialVectorEnv([lambda: filtered])
    return GymnasiumDriver(
        vector_env,
        autoreset=autoreset_mode,
        action_mask=action_mask,
        episode_metrics=episode_metrics,
    )


def env_name(env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]) -> str:
    """Return the id an environment was made with, or the name of its class."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _make_vector_env(config: GymConfig, num_envs: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    import gymnasium
    from gymnasium.vector import AutoresetMode

    from royale_client.driver_serial import SerialVectorEnv

    options: dict[str, Any] = {**config.parsed_kwargs()}
    if config.time_limit is not None:
        options["max_episode_steps"] = config.time_limit
    if config.vectorization == "vector_entry_point":
        return gymnasium.make_vec(
            config.env_id, num_envs, vectorization_mode="vector_entry_point", **options
        )
    wrap = _wrapper_for(config)
    if config.vectorization == "sync":
        return SerialVectorEnv([lambda: wrap(gymnasium.make(config.env_id, **options))] * num_envs)
    return gymnasium.make_vec(
        config.env_id,
        num_envs,
        vectorization_mode=config.vectorization,
        vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED, "copy": False},
        wrappers=[wrap],
        **options,
    )


def _wrapper_for(config: GymConfig) -> Callable[[AnyEnv], AnyWrapper]:
    """Return one function that puts all wrappers around an environment, ours outermost."""
    import gymnasium

    from royale_client.envs.wrappers import FrameSkip, InfoFilter
    from royale_client.snapshots.async_layer import PartSnapshots
    from royale_client.space_conversion import to_spec
    from royale_client.wire.spaces import mask_size

    classes: list[Any] = [load_object(name, f"--wrapper {name}") for name in config.wrapper]
    names = tuple(metric.name for metric in config.metrics())
    wants_masks = config.action_mask != "off"

    def wrap(env: AnyEnv) -> AnyWrapper:
        for wrapper in classes:
            env = wrapper(env)
            if not isinstance(env, gymnasium.Env):
                raise ConfigError(f"--wrapper {wrapper!r} gave a {type(env).__name__}, no Env")
        if config.frame_skip > 1:
            env = FrameSkip(env, config.frame_skip)
        size = mask_size(to_spec(env.action_space)) if wants_masks else None
        filtered = InfoFilter(env, size, names)
        if config.vectorization == "async":
            return PartSnapshots(filtered)
        return filtered

    return wrap


def _unknown_id(env_id: str, error: Exception) -> str:
    import gymnasium

    close = difflib.get_close_matches(env_id, list(gymnasium.registry), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return (
        f"no Gymnasium environment {env_id!r}: {hint}An environment of your own package is found "
        f"when its module registers it: --env-id my_module:MyEnv-v0. ({error})"
    )


def _facts(config: GymConfig) -> Mapping[str, Any]:
    """Return what else tells two environments of one id apart."""
    import gymnasium

    from royale_client.envs.digest import package_version

    # The module of a module:Name-v0 id was imported when the environment was built.
    spec = gymnasium.spec(config.env_id.rpartition(":")[2])
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else repr(spec.entry_point)
    package = entry_point.split(".")[0].split(":")[0]
    return {
        "kwargs": config.parsed_kwargs(),
        "wrappers": list(config.wrapper),
        "frame_skip": config.frame_skip,
        "time_limit": config.time_limit or spec.max_episode_steps,
        "entry_point": entry_point,
        "versions": {name: package_version(name) for name in ("gymnasium", package)},
    }


PROVIDER = EnvProvider(
    name="gym",
    summary="any environment with a Gymnasium id",
    config_type=GymConfig,
    env_id=lambda config: config.env_id,
    make=make_driver,
    facts=_facts,
)
