"""What a checkpoint of a run holds: the one place that names its documents and tensors.

::

    model, optimizer    tensors of the learner
    rollout             frames not yet learnt from, books over slots, parked requests
    envs                snapshots of environments, where clients gave one
    opponents           snapshots of the policy, in self-play
    state.json          counters of learner and run, spaces, sessions, where alarms stand
    rng.json            every random generator of the process

Plain conversion in both directions; decides nothing, reads and writes no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from algorithms.base import LearnerState
from algorithms.spaces import Spaces
from checkpoints import CheckpointContents
from royale_client.wire.messages import Step
from royale_client.wire.spaces import from_data, leaves, to_data
from royale_server.model.engine import Snapshot
from royale_server.scheduler import LedgerBooks, SavedGroup, SavedMember, SchedulerState, Turns
from royale_server.selfplay.book import SavedSeating
from royale_server.selfplay.pool import PoolState

MODEL, OPTIMIZER, ROLLOUT, ENVIRONMENTS = "model", "optimizer", "rollout", "envs"
OPPONENTS = "opponents"
STATE, LEARNER, RANDOM = "state", "learner", "rng"
ALARMS = "alarms"
"""Where alarms stand, in the state; added by whoever writes the checkpoint."""

_FRAMES, _BOOKS, _SLOTS, _REQUEST = "frames.", "books.", "slots.", "request."

if TYPE_CHECKING:
    import torch

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounters:
    """Where the run itself stands."""

    iteration: int
    env_steps: int
    attempt: int
    """The attempt that wrote the checkpoint."""
    episodes_total: int
    recent_returns: list[float]
    """Returns of the last training episodes, oldest first."""
    episodes: list[dict[str, Any]] = field(default_factory=list)
    """Training episodes that ended since the last learn step; fields of ``EndedEpisode``."""
    next_episodes: dict[str, int] = field(default_factory=dict)
    """By client name, an episode ordinal that none of its slots has reached."""
    episode_metrics: list[list[str]] = field(default_factory=list)
    """Name and aggregation of what clients declare of their episodes."""
    env_ids: list[str] = field(default_factory=list)
    """Environment ids that have taken part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedClient:
    """What is kept of a client besides its part in the scheduler."""

    env_id: str
    env_digest: str
    states: tuple[Array, ...] = ()
    """Snapshot of each group's environments, ``(b,)`` uint8; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The part of a checkpoint that clients come back to."""

    scheduler: SchedulerState
    clients: Mapping[str, SavedClient]
    """By name, one for each member of the scheduler's state."""
    versions: Arrays
    """Policy versions of the running episodes over slots; see ``EpisodeBook``. Each ``(S,)``."""
    seating: SavedSeating
    """Who plays next, in self-play; who plays now is in the scheduler's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A checkpoint, understood."""

    learner: LearnerState
    counters: RunCounters
    spaces: Spaces
    frames: Arrays
    """For ``Engine.load_frames``."""
    sessions: Sessions | None
    """None if the checkpoint was not taken at rest."""
    generators: Any
    """For ``random_state.restore``."""
    opponents: Mapping[str, torch.Tensor]
    """For ``Opponents.load``."""


def to_contents(
    snapshot: Snapshot,
    *,
    counters: RunCounters,
    spaces: Spaces,
    sessions: Sessions | None,
    facts: Mapping[str, Any],
) -> CheckpointContents:
    """Put a run into the form of a checkpoint. Its step is the number of stored frames."""
    rollout: Arrays = {}
    environments: Arrays = {}
    documents: dict[str, Any] = {
        LEARNER: snapshot.state.counters,
        "run": asdict(counters),
        "spaces": _spaces_to_data(spaces),
    }
    num_frames = 0
    if sessions is not None:
        state = sessions.scheduler
        num_frames = len(state.books.cells)
        rollout |= {_FRAMES + name: rows for name, rows in snapshot.frames.items()}
        rollout |= _slot_arrays(sessions)
        for i, member in enumerate(state.members):
            for g, group in enumerate(member.groups):
                rollout |= _request_arrays(f"{_REQUEST}{i}.{g}.", group)
            for g, blob in enumerate(sessions.clients[member.name].states):
                environments[f"{i}.{g}"] = blob
        documents["sessions"] = _sessions_to_data(sessions)
    return CheckpointContents(
        step=snapshot.global_step + num_frames,
        tensors={
            MODEL: snapshot.state.model,
            OPTIMIZER: snapshot.state.optimizer,
            ROLLOUT: rollout,
            ENVIRONMENTS: environments,
            **({OPPONENTS: snapshot.opponents} if snapshot.opponents else {}),
        },
        documents={STATE: documents, RANDOM: snapshot.generators},
        facts=facts,
    )


def from_contents(contents: CheckpointContents) -> SavedRun:
    """Read a checkpoint of this very run."""
    state = contents.documents[STATE]
    rollout = _arrays(contents, ROLLOUT)
    return SavedRun(
        learner=learner_state(contents),
        counters=RunCounters(**state["run"]),
        spaces=_spaces_from_data(state["spaces"]),
        frames=_below(rollout, _FRAMES),
        sessions=_read_sessions(state, rollout, _arrays(contents, ENVIRONMENTS)),
        generators=contents.documents[RANDOM],
        opponents=_tensors(contents, OPPONENTS),
    )


def learner_state(contents: CheckpointContents) -> LearnerState:
    """Read the learner's part of a checkpoint, whichever run wrote it."""
    return LearnerState(
        model=_tensors(contents, MODEL),
        optimizer=_tensors(contents, OPTIMIZER),
        counters=contents.documents[STATE][LEARNER],
    )


def spaces_of(contents: CheckpointContents) -> Spaces:
    """Read the spaces of a checkpoint, whichever run wrote it."""
    return _spaces_from_data(contents.documents[STATE]["spaces"])


# --- sessions -----------------------------------------------------------------------------


def _slot_arrays(sessions: Sessions) -> Arrays:
    state = sessions.scheduler
    books = {
        "cell_slots": state.books.cell_slots,
        "tails": state.books.tails,
        "ordinals": state.books.ordinals,
        "answered": state.books.answered,
        "episode_frames": state.books.episode_frames,
    }
    slots = {
        "tainted": state.tainted,
        "seats": state.seats,
        "episodes": state.episodes,
        "steps": state.steps,
        "next_seats": sessions.seating.next_seats,
        "unsent": sessions.seating.unsent,
    }
    return {_BOOKS + name: array for name, array in books.items()} | {
        _SLOTS + name: array for name, array in (slots | sessions.versions).items()
    }


def _request_arrays(prefix: str, group: SavedGroup) -> Arrays:
    step: Step = group.payload
    arrays = {f"{prefix}observations.{j}": leaf for j, leaf in enumerate(step.observations)}
    masks = {} if step.masks is None else {f"{prefix}masks": step.masks}
    return {f"{prefix}asks": group.asks, **arrays, **masks}


def _sessions_to_data(sessions: Sessions) -> dict[str, Any]:
    state = sessions.scheduler
    members = []
    for member in state.members:
        client = sessions.clients[member.name]
        members.append(
            {
                "name": member.name,
                "env_id": client.env_id,
                "env_digest": client.env_digest,
                "groups": [
                    {
                        "start": group.start,
                        "size": group.size,
                        "number": group.number,
                        "turns": asdict(group.turns),
                    }
                    for group in member.groups
                ],
            }
        )
    return {
        "version": state.version,
        "round": state.round,
        "members_ever": state.members_ever,
        "members": members,
        "bots": list(sessions.seating.bots),
        "pool": asdict(sessions.seating.pool),
    }


def _read_sessions(
    state: Mapping[str, Any], rollout: Arrays, environments: Arrays
) -> Sessions | None:
    data = state.get("sessions")
    if data is None:
        return None
    num_leaves = len(leaves(from_data(state["spaces"]["observation"])))
    members: list[SavedMember] = []
    clients: dict[str, SavedClient] = {}
    for i, member in enumerate(data["members"]):
        groups = tuple(
            _read_group(group, g, _below(rollout, f"{_REQUEST}{i}.{g}."), num_leaves)
            for g, group in enumerate(member["groups"])
        )
        members.append(SavedMember(name=member["name"], groups=groups))
        blobs = [environments.get(f"{i}.{g}") for g in range(len(groups))]
        clients[member["name"]] = SavedClient(
            env_id=member["env_id"],
            env_digest=member["env_digest"],
            states=tuple(blob for blob in blobs if blob is not None),
        )
    books, slots = _below(rollout, _BOOKS), _below(rollout, _SLOTS)
    scheduler = SchedulerState(
        version=data["version"],
        round=data["round"],
        members_ever=data["members_ever"],
        members=tuple(members),
        books=LedgerBooks(cells=np.arange(len(books["cell_slots"])), **books),
        tainted=slots.pop("tainted"),
        seats=slots.pop("seats"),
        episodes=slots.pop("episodes"),
        steps=slots.pop("steps"),
    )
    seating = SavedSeating(
        bots=tuple(data["bots"]),
        pool=PoolState(**(data["pool"] | {"residents": tuple(data["pool"]["residents"])})),
        next_seats=slots.pop("next_seats"),
        unsent=slots.pop("unsent"),
    )
    return Sessions(scheduler=scheduler, clients=clients, versions=slots, seating=seating)


def _read_group(data: Mapping[str, Any], index: int, arrays: Arrays, num_leaves: int) -> SavedGroup:
    step = Step(
        group=index,
        request=data["number"],
        asks=arrays["asks"],
        observations=tuple(arrays[f"observations.{j}"] for j in range(num_leaves)),
        masks=arrays.get("masks"),
    )
    turns = data["turns"]
    return SavedGroup(
        start=data["start"],
        size=data["size"],
        number=data["number"],
        asks=arrays["asks"],
        payload=step,
        turns=Turns(
            seconds=tuple(turns["seconds"]), in_quorum=turns["in_quorum"], streak=turns["streak"]
        ),
    )


# --- small things -------------------------------------------------------------------------


def _spaces_to_data(spaces: Spaces) -> dict[str, Any]:
    return {
        "observation": to_data(spaces.observation),
        "action": to_data(spaces.action),
        "masks": spaces.masks,
    }


def _spaces_from_data(data: Mapping[str, Any]) -> Spaces:
    return Spaces(
        observation=from_data(data["observation"]),
        action=from_data(data["action"]),
        masks=data["masks"],
    )


def _arrays(contents: CheckpointContents, stem: str) -> Arrays:
    return {name: np.asarray(array) for name, array in contents.tensors.get(stem, {}).items()}


def _tensors(contents: CheckpointContents, stem: str) -> dict[str, torch.Tensor]:
    import torch

    return {n: torch.as_tensor(array) for n, array in contents.tensors.get(stem, {}).items()}


def _below(arrays: Arrays, prefix: str) -> Arrays:
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
