"""Makes the engine of a run from its configuration and the spaces of its first client.

Everything that can refuse a run because of its spaces, its weights or its device happens here,
before the first action. Runs on the model thread; imports torch.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from algorithms.base import Learner, LearnerState, Policy
from algorithms.config import RESTORE_ALL
from algorithms.errors import RestoreError
from algorithms.policies.config import RATIO_TOLERANCE
from algorithms.restore import RestorePlan, plan_policy
from algorithms.spaces import Spaces
from algorithms.storage import RolloutStorage
from checkpoints import load
from royale_client.wire.errors import ConfigError
from royale_client.wire.spaces import leaves, mask_size
from royale_server.config import ServerConfig
from royale_server.model import random_state
from royale_server.model.device_memory import memory_of
from royale_server.model.engine import Array, Engine
from royale_server.model.opponents import Opponents
from royale_server.model.rehearsal import rehearse
from royale_server.model.slot_cost import slot_bytes
from royale_server.model.threads import limit_threads
from royale_server.preflight import machine
from royale_server.preflight.facts import ModelFacts
from royale_server.saved_run import learner_state, spaces_of


@dataclass(frozen=True, slots=True)
class Components:
    """The classes that the command line chose."""

    policy: Callable[..., Policy]
    learner: Callable[..., Learner]


@dataclass(frozen=True, slots=True)
class Saved:
    """What the engine of an interrupted run continues from."""

    learner: LearnerState
    frames: dict[str, Array]
    """For ``Engine.load_frames``."""
    generators: Mapping[str, Any]
    """For ``random_state.restore``."""
    opponents: Mapping[str, torch.Tensor]
    """For ``Opponents.load``."""


@dataclass(frozen=True, slots=True)
class Built:
    """What the rest of the server needs to know about the engine."""

    engine: Engine
    frames_wanted: int | None
    policy_version: int
    global_step: int
    saves: bool
    metrics: tuple[Any, ...]
    """Declarations of the learner's metric keys."""
    device: str
    facts: ModelFacts
    """For the preflight."""


def build(
    config: ServerConfig,
    components: Components,
    spaces: Spaces,
    *,
    resumed: Saved | None,
    warm_start: LearnerState | None,
) -> Built:
    """Build policy, learner and storage, and take over a checkpoint.

    Args:
        config: Settings of the run.
        components: Classes of the policy and the algorithm.
        spaces: Spaces of the environments.
        resumed: What this very run is continued from.
        warm_start: The learner of another run, to take weights from.

    Raises:
        ConfigError: If the device is not there or the policy cannot handle the spaces.
        RestoreError: If a checkpoint does not fit, naming every tensor that does not.
    """
    device = choose_device(config.device)
    seed_everything(config)
    policy = components.policy(config.policy, spaces, device=device)
    learner = components.learner(config.algo, policy, seed=config.seed)
    if resumed is not None:
        learner.load_state(resumed.learner, RESTORE_ALL)
    elif warm_start is not None:
        _take_over(learner, warm_start, config.algo.restore)
    wanted = learner.frames_wanted()
    if wanted is None:
        raise ConfigError(f"{learner.uid}: this server trains on-policy algorithms only")
    process = machine.process_bytes()
    rehearsal = rehearse(learner, spaces, memory_of(device))
    storage = RolloutStorage(
        max(wanted, config.algo.frames_per_iteration) + config.max_slots,
        leaves(spaces.observation),
        policy.step_state,
        mask_size(spaces.action) if spaces.masks else None,
    )
    opponents = Opponents(partial(components.policy, config.policy, spaces, device=device))
    engine = Engine(
        learner.policy,
        learner,
        storage,
        opponents,
        may_be_nonfinite=config.on_nonfinite == "pass",
    )
    engine.evaluate_with(
        [learner_state(load(Path(name))).model for name in config.evaluate.checkpoints],
        greedy=config.evaluate.is_greedy_in_battles,
    )
    if resumed is not None:
        opponents.load(resumed.opponents)
        engine.load_frames(resumed.frames)
        random_state.restore(resumed.generators)
    return Built(
        engine=engine,
        frames_wanted=wanted,
        policy_version=learner.policy_version,
        global_step=learner.global_step,
        saves=learner.saves,
        metrics=tuple(learner.metrics),
        device=str(device),
        facts=ModelFacts(
            device=str(device),
            parameters=sum(parameter.numel() for parameter in policy.parameters()),
            storage_bytes=storage.nbytes,
            storage_frames=storage.capacity,
            frames_wanted=wanted,
            slot_bytes=slot_bytes(spaces),
            process_bytes=process,
            available_bytes=machine.available_bytes(),
            checkpoint_bytes=_checkpoint_bytes(policy, storage, wanted) if learner.saves else 0,
            ratio_tolerance=_ratio_tolerance(config),
            rehearsal=rehearsal,
            layout=policy.action_layout(),
        ),
    )


def check_resume(
    config: ServerConfig, components: Components, spaces: Spaces, state: LearnerState
) -> None:
    """See whether a run's learner still fits its settings, before anything is touched.

    Args:
        config: Settings of the run, changed since.
        components: Classes of the policy and the algorithm.
        spaces: Spaces of the run.
        state: Its learner.

    Raises:
        RestoreError: If it does not, naming every tensor.
    """
    learner = _trial_learner(config, components, spaces)
    if learner is not None:
        learner.load_state(state, RESTORE_ALL)


def check_warm_start(
    config: ServerConfig, components: Components, spaces: Spaces, state: LearnerState
) -> None:
    """See whether another run's learner fits these settings, as far as can be told by now.

    Args:
        config: Settings of the run that is to begin.
        components: Classes of the policy and the algorithm.
        spaces: Spaces of the other run; clients may still bring other ones.
        state: Its learner.

    Raises:
        RestoreError: If it does not, naming every tensor.
        ConfigError: If its counters leave nothing to do.
    """
    learner = _trial_learner(config, components, spaces)
    if learner is not None:
        _take_over(learner, state, config.algo.restore)


def check_opponents(config: ServerConfig, components: Components) -> None:
    """See whether the checkpoints that evaluation rounds are played against fit these settings.

    Args:
        config: Settings of the run that is to begin.
        components: Classes of the policy and the algorithm.

    Raises:
        CheckpointError: If one is damaged.
        ConfigError: If one does not fit, naming it and every tensor.
    """
    for name in config.evaluate.checkpoints:
        contents = load(Path(name))
        plan = RestorePlan(RESTORE_ALL)
        try:
            policy = components.policy(config.policy, spaces_of(contents))
            plan_policy(plan, policy, learner_state(contents).model)
            plan.raise_problems()
        except (ConfigError, RestoreError) as error:
            raise ConfigError(f"--evaluate.against {name}: {error}") from error


def _trial_learner(config: ServerConfig, components: Components, spaces: Spaces) -> Learner | None:
    """A learner to try things on; None where the policy is for other spaces than these."""
    try:
        policy = components.policy(config.policy, spaces)
    except ConfigError:
        return None
    return components.learner(config.algo, policy, seed=config.seed)


def _ratio_tolerance(config: ServerConfig) -> float:
    """By the policy's precision; a plug-in that names none is taken to compute in full."""
    return RATIO_TOLERANCE.get(getattr(config.policy, "precision", ""), RATIO_TOLERANCE["float32"])


def _checkpoint_bytes(policy: Policy, storage: RolloutStorage, frames: int) -> int:
    """Size of a checkpoint: weights, two moments of Adam, and a buffer that is full."""
    weights = sum(tensor.nbytes for tensor in policy.tensors().values())
    return 3 * weights + storage.nbytes * frames // storage.capacity


def preload() -> None:
    """Make torch import, while clients are still being waited for, what it imports on first use.

    Building the first optimizer costs seconds of imports.
    """
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])


def choose_device(wanted: str) -> torch.device:
    """Resolve ``auto``; refuse a GPU that torch does not see.

    Raises:
        ConfigError: If the device is not there.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(wanted)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if count <= (device.index or 0):
            raise ConfigError(
                f"--device {wanted}: torch sees {count} GPUs here; use --device cpu or auto, or "
                "install a torch build for this GPU"
            )
    return device


def seed_everything(config: ServerConfig) -> None:
    """Seed Python, NumPy and torch, and pin what would make results depend on the load."""
    random.seed(config.seed)
    np.random.seed(config.seed)  # plug-ins may use the global generator
    torch.manual_seed(config.seed)
    limit_threads(config.torch_threads)
    if config.deterministic:
        # cuBLAS reads it when CUDA starts, and refuses deterministic work without it.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(mode=True)


def _take_over(learner: Learner, state: LearnerState, restore: str) -> None:
    learner.load_state(state, restore)
    finished = learner.finished() if restore == RESTORE_ALL else None
    if finished is not None:
        raise ConfigError(
            f"--algo.restore all continues the counters, and the checkpoint at step "
            f"{learner.global_step} already meets the budget ({finished}); raise "
            "--algo.total-timesteps, or take only the weights with --algo.restore model"
        )
