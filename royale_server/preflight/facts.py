"""What the checks judge: plain frozen values, gathered elsewhere. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # a command that is refused does not wait for these
    import numpy as np

    from royale_client.wire.probes import ProbeAnswer

    IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Code in one git work tree."""

    name: str
    changed_files: tuple[str, ...] = ()
    problem: str | None = None
    """Why git could not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file that the settings name and the run reads."""

    flag: str
    path: Path
    digest: str | None
    """SHA-256; None if it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """Somebody else's process on the device."""

    pid: int
    name: str
    used_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What can be known before the server listens."""

    refusals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Check name -> what other parts of the server refuse, a text each; its first line says it."""
    is_resumed: bool = False
    address: tuple[str, int] | None = None
    """Where it would listen; None without a TCP port."""
    address_error: str | None = None
    """Why it cannot."""
    disk_folder: Path = Path()
    disk_free_bytes: int | None = None
    checkpoint_bytes: int | None = None
    """Size of a checkpoint of this run; None as long as none is known."""
    sources: tuple[SourceFacts, ...] = ()
    files: tuple[NamedFile, ...] = ()
    device: str = "cpu"
    device_is_shared: bool = False
    """Whether the settings say that others may use the device."""
    device_processes: tuple[DeviceProcess, ...] | None = ()
    """Of others; None if nobody can tell."""
    ram_budget_mb: int | None = None
    open_files: int | None = None
    """Limit of this process; None if the system has none or does not tell."""
    max_sessions: int = 1
    total_frames: int | None = None
    """Frames of a run that goes on beyond its budget; None if it does not."""
    schedule_frames: int | None = None
    """Frames over which schedules run; None without schedules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalFacts:
    """What one forward and backward pass at the real size took."""

    frames: int
    failure: str | None = None
    """What it raised; nothing else is known then."""
    ratio_deviation: float | None = None
    """Largest |ratio - 1| between acting and judging with the same weights."""
    held_bytes: int = 0
    """On the device for a whole learn step: the frames of an iteration, the optimizer."""
    device_free_bytes: int | None = None
    """What the driver reported free before; None on the processor."""
    device_peak_bytes: int | None = None
    """Most that the pass reserved."""
    host_bytes: int = 0
    """By how much the process grew."""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known once policy, learner and storage are built."""

    device: str
    parameters: int
    """Numbers that are learnt."""
    storage_bytes: int
    """Rollout storage, exactly."""
    storage_frames: int
    """Cells of it."""
    frames_wanted: int
    """Of an iteration."""
    slot_bytes: int
    """Cost of one more slot on the server, measured."""
    process_bytes: int | None
    """The process before storage; None where the system does not tell."""
    available_bytes: int | None
    """Free on the machine now."""
    checkpoint_bytes: int
    """Of a checkpoint with a full buffer."""
    ratio_tolerance: float
    rehearsal: RehearsalFacts | None = None
    layout: IntArray | None = None
    """What action numbers mean to the policy, see `algorithms.base.Policy.action_layout`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFacts:
    """The first client's environment, and what it answered."""

    client: str
    env_id: str
    env_digest: str
    num_slots: int
    has_masks: bool
    answers_probes: bool
    answers: Mapping[str, ProbeAnswer] = field(default_factory=dict)
    """By question."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why there is no answer, by question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinibatchSetting:
    """How the size of a gradient step's pieces is set."""

    size: int
    batch: int
    """Frames of a gradient step, or of a pass over the iteration where a piece is a step."""
    is_only_memory: bool
    """Whether the size says how much fits at once and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """What is known when the first client has said hello and the model is built."""

    model: ModelFacts | None = None
    environment: EnvironmentFacts | None = None
    """None where the run is resumed and nobody has come."""
    num_clients: int = 1
    """That are waited for; each is taken to bring as many slots as the first."""
    ram_budget_mb: int | None = None
    vram_headroom_mb: int = 0
    disk_folder: Path = Path()
    disk_free_bytes: int | None = None
    minibatch: MinibatchSetting | None = None
