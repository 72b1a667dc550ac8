"""Gathers what the checks before listening judge: asks the parts of the server and the machine.

Reads files, ports and the driver; creates, changes and removes nothing. Whatever a part refuses
becomes a fact, so that all refusals are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from algorithms.base import LearnerState
from algorithms.config import LearnerConfig
from checkpoints import CheckpointContents, load, read_manifest
from checkpoints.errors import CheckpointError
from royale_client.wire.errors import ConfigError, RoyaleError
from royale_server.config import ServerConfig
from royale_server.model.build import (
    Components,
    check_opponents,
    check_resume,
    check_warm_start,
)
from royale_server.preflight import machine, start_checks
from royale_server.preflight.facts import DeviceProcess, SourceFacts, StartFacts
from royale_server.preflight.named_files import named_files
from royale_server.registry import AlgorithmEntry, PolicyEntry
from royale_server.run.attempt import (
    Prepared,
    check_identity,
    check_unfinished,
    choose_device_kind,
    load_resumed,
    make_trackers,
    plan_attempt,
)
from royale_server.run.identity_check import CheckedIdentity
from royale_server.run.lock import RunInUseError
from royale_server.run.prepare import RunPlan
from royale_server.saved_run import learner_state, spaces_of

Found = TypeVar("Found")


@dataclass(slots=True)
class Examination:
    """Facts for the checks, and what an attempt can begin with if none of them refuses."""

    facts: StartFacts
    plan: RunPlan | None = None
    """What the start means for the disk; None if that was refused."""
    components: Components | None = None
    warm_start: LearnerState | None = None
    prepared: Prepared | None = None
    """None if something was refused."""


@dataclass(slots=True)
class _Refusals:
    """Collects what is refused, by the name of the check that tells it."""

    by_check: dict[str, list[str]] = field(default_factory=dict)

    def catch(self, check: str, ask: Callable[[], Found]) -> Found | None:
        """Return what ``ask`` returns; None if it refuses, or the disk does."""
        try:
            return ask()
        except RunInUseError as error:
            self.add(start_checks.LIVE_RUN, str(error))
        except CheckpointError as error:
            is_other_run = check in (start_checks.WARM_START, start_checks.OPPONENTS)
            self.add(check if is_other_run else start_checks.CHECKPOINT, str(error))
        except RoyaleError as error:
            self.add(check, str(error))
        except OSError as error:
            text = f"{error.filename or check}: {error.strerror or error}"
            self.add(check, f"{text}; check its permissions")
        return None

    def add(self, check: str, text: str) -> None:
        """Note a refusal."""
        self.by_check.setdefault(check, []).append(text)


def examine(
    config: ServerConfig, policy_entry: PolicyEntry, algo_entry: AlgorithmEntry
) -> Examination:
    """Find out everything that can be known before the server listens.

    Args:
        config: Settings, each valid by itself.
        policy_entry: The chosen policy.
        algo_entry: The chosen algorithm.
    """
    refused = _Refusals()
    components = refused.catch(
        start_checks.COMPONENTS,
        lambda: Components(
            policy=policy_entry.load_implementation(), learner=algo_entry.load_implementation()
        ),
    )
    kind = refused.catch(start_checks.DEVICE, lambda: choose_device_kind(config))
    warm_start = refused.catch(start_checks.WARM_START, lambda: _warm_start(config, components))
    if components is not None:
        refused.catch(start_checks.OPPONENTS, partial(check_opponents, config, components))
    plan = refused.catch(start_checks.DIRECTORY, lambda: plan_attempt(config))
    identity, resumed, trackers = None, None, None
    trackers = refused.catch(start_checks.TRACKER, lambda: make_trackers(config))
    if plan is not None:
        refused.catch(start_checks.FINISHED, lambda: check_unfinished(config, plan))
        wanted = kind or config.device.partition(":")[0]
        identity = refused.catch(
            start_checks.IDENTITY, lambda: check_identity(config, plan, wanted)
        )
        resumed = _resumed(config, components, plan, identity, refused)
    facts = _facts(config, plan, identity, kind, refused.by_check)
    prepared = None
    if not refused.by_check and plan is not None and identity is not None:
        prepared = Prepared(plan=plan, identity=identity, resumed=resumed, trackers=trackers or [])
    return Examination(
        facts=facts,
        plan=plan,
        components=components,
        warm_start=warm_start,
        prepared=prepared,
    )


def _resumed(
    config: ServerConfig,
    components: Components | None,
    plan: RunPlan,
    identity: CheckedIdentity | None,
    refused: _Refusals,
) -> CheckpointContents | None:
    if identity is None or components is None:
        return None
    check = partial(check_changed, config, components)
    return refused.catch(start_checks.CHECKPOINT, lambda: load_resumed(plan, identity, check))


def check_changed(
    config: ServerConfig, components: Components, contents: CheckpointContents
) -> None:
    """Refuse a run that may change and can no longer load its weights."""
    check_resume(config, components, spaces_of(contents), learner_state(contents))


def _warm_start(config: ServerConfig, components: Components | None) -> LearnerState | None:
    path = getattr(config.algo, "policy_checkpoint_path", None)
    if path is None and getattr(config.algo, "needs_weights", False):
        raise ConfigError(
            "--algo.policy-checkpoint-path: got none, expected the directory of the checkpoint "
            "that is to be evaluated"
        )
    if path is None or config.resume:
        return None
    contents = load(path)
    state = learner_state(contents)
    if components is not None:
        check_warm_start(config, components, spaces_of(contents), state)
    return state


def _facts(
    config: ServerConfig,
    plan: RunPlan | None,
    identity: CheckedIdentity | None,
    kind: str | None,
    refusals: Mapping[str, list[str]],
) -> StartFacts:
    opens_port = config.tcp and config.inline is None
    is_limited = isinstance(config.algo, LearnerConfig)
    return StartFacts(
        refusals={name: tuple(texts) for name, texts in refusals.items()},
        is_resumed=config.resume,
        address=(config.host, config.port) if opens_port else None,
        address_error=machine.address_error(config.host, config.port) if opens_port else None,
        disk_folder=config.checkpoint_base_dir,
        disk_free_bytes=machine.free_disk_bytes(config.checkpoint_base_dir),
        checkpoint_bytes=_checkpoint_bytes(plan),
        sources=tuple(
            SourceFacts(name=s.name, changed_files=s.changed_files, problem=s.problem)
            for s in (identity.sources if identity is not None else ())
        ),
        files=named_files(config),
        device=config.device if kind is None else kind,
        device_is_shared=config.doctor.shared_device,
        device_processes=_device_processes(config, kind),
        ram_budget_mb=config.doctor.ram_budget_mb,
        open_files=machine.open_files_limit(),
        max_sessions=1 if config.inline is not None else config.max_sessions,
        total_frames=_frames_beyond_the_budget(config) if is_limited else None,
        schedule_frames=config.algo.schedule_frames if is_limited else None,
    )


def _frames_beyond_the_budget(config: ServerConfig) -> int | None:
    """Where a run ends that goes on after its budget. A horizon within it was chosen on purpose."""
    until = config.until_timesteps
    return until if until is not None and until > config.algo.total_timesteps else None


def _device_processes(config: ServerConfig, kind: str | None) -> tuple[DeviceProcess, ...] | None:
    if kind != "cuda":
        return ()
    number = config.device.partition(":")[2]
    return machine.device_processes(int(number) if number else 0)


def _checkpoint_bytes(plan: RunPlan | None) -> int | None:
    """Size of the newest checkpoint of the run that is resumed."""
    if plan is None or plan.checkpoint is None:
        return None
    try:
        return _size_of(plan.checkpoint)
    except (CheckpointError, OSError):
        return None  # told by the check that reads it


def _size_of(step: Path) -> int:
    return sum(record.size_bytes for record in read_manifest(step).files.values())
