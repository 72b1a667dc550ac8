"""``hello`` and ``welcome``: what a client says it is, and what the server makes of it.

Reading one checks each field by itself; whether they fit together is asked in ``hello_rules``. The
keys ``t`` and ``protocol`` of a hello keep their place in every protocol version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from royale_client.wire.dtypes import DTYPES, Array
from royale_client.wire.episodes import EpisodeMetric
from royale_client.wire.errors import MessageDecodeError, VersionMismatchError, brief
from royale_client.wire.fields import (
    Header,
    array,
    flag,
    integer,
    integers,
    maps,
    number,
    optional_flag,
    optional_text,
    table,
    text,
    texts,
)
from royale_client.wire.limits import Limits
from royale_client.wire.space_data import from_data, to_data
from royale_client.wire.space_specs import SpaceSpec
from royale_client.wire.version import PROTOCOL_MAX, PROTOCOL_MIN

IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
SeedArray: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

RECONNECT = "reconnect"
"""Feature of a client that can go on with its session over another connection."""

MAX_NAMES = 64
"""Entries of ``features`` and ``versions``."""

_I8 = DTYPES["i8"]
_U8 = DTYPES["u8"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hello:
    """The first message: who the client is and what environments it brings. ``n`` is its slots."""

    TYPE: ClassVar[str] = "hello"

    protocol_min: int = PROTOCOL_MIN
    """Oldest protocol version the client speaks."""
    protocol_max: int = PROTOCOL_MAX
    """Newest protocol version the client speaks."""
    client_name: str
    """Stable name of the client within the run."""
    process_id: str
    """Token of this process, another one after each start."""
    resume_token: str | None = None
    """Session token of an earlier welcome, to continue that session."""
    role: str = "train"
    """``train`` or ``eval``."""
    env_id: str
    """Name of the environment."""
    env_digest: str = ""
    """Digest of the environment's version and settings."""
    observation_space: SpaceSpec
    """Space of one slot's observation."""
    action_space: SpaceSpec
    """Space of one slot's action."""
    groups: tuple[int, ...]
    """Number of slots of each group; slots are numbered through the groups in order."""
    environments: IntArray | None = None
    """Index of each slot's environment. Shape ``(n,)``; None if each slot is one of its own."""
    seats: IntArray | None = None
    """Seat of each slot within its environment. Shape ``(n,)``; None if all are 0."""
    masks: bool = False
    """Every asking row comes with a mask of legal actions."""
    episode_metrics: tuple[EpisodeMetric, ...] = ()
    """Numbers the environment reports once per episode."""
    features: tuple[str, ...] = ()
    """Optional abilities of the client."""
    host: str = ""
    """Name of the client's machine."""
    pid: int = 0
    """Process number on that machine."""
    versions: dict[str, str] = field(default_factory=dict)
    """Package name to version, for the run's records."""

    @property
    def num_slots(self) -> int:
        """Number of slots n of the client."""
        return sum(self.groups)

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and arrays."""
        arrays: dict[str, Array] = {}
        header: Header = {
            "t": self.TYPE,
            "protocol": [self.protocol_min, self.protocol_max],
            "client_name": self.client_name,
            "process_id": self.process_id,
            "resume_token": self.resume_token,
            "role": self.role,
            "env_id": self.env_id,
            "env_digest": self.env_digest,
            "observation_space": to_data(self.observation_space, arrays),
            "action_space": to_data(self.action_space, arrays),
            "groups": self.groups,
            "masks": self.masks,
            "episode_metrics": [metric.to_data() for metric in self.episode_metrics],
            "features": self.features,
            "host": self.host,
            "pid": self.pid,
            "versions": self.versions,
        }
        for name, column in (("environments", self.environments), ("seats", self.seats)):
            if column is not None:
                arrays[name] = np.asarray(column, dtype=_I8)
        return header, arrays

    @classmethod
    def from_wire(
        cls, header: Header, arrays: Mapping[str, Array], limits: Limits | None = None
    ) -> Hello:
        """Read a hello; call ``check_hello`` before trusting it.

        Raises:
            VersionMismatchError: It names no protocol range.
            ProtocolError: A field is missing or of another kind.
        """
        bounds = limits or Limits()
        where, name = "hello", bounds.max_name_length
        low, high = protocol_range(header)
        return cls(
            protocol_min=low,
            protocol_max=high,
            client_name=text(header, "client_name", where, name),
            process_id=text(header, "process_id", where, name),
            resume_token=optional_text(header, "resume_token", where, name),
            role=text(header, "role", where, name),
            env_id=text(header, "env_id", where, name),
            env_digest=text(header, "env_digest", where, name),
            observation_space=_space(header, "observation_space", arrays),
            action_space=_space(header, "action_space", arrays),
            groups=integers(header, "groups", where, bounds.max_groups, low=1),
            environments=_column(arrays, "environments"),
            seats=_column(arrays, "seats"),
            masks=flag(header, "masks", where),
            episode_metrics=_metrics(header, bounds),
            features=texts(header, "features", where, MAX_NAMES, name),
            host=text(header, "host", where, name),
            pid=integer(header, "pid", where),
            versions=_versions(header, name),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Welcome:
    """The answer to a hello that is admitted."""

    TYPE: ClassVar[str] = "welcome"

    protocol: int
    """Protocol version both sides use from now on."""
    session_token: str
    """Secret by which this client may continue the session."""
    run_id: str
    """Identity of the run, for ever."""
    run_name: str
    """Name of the run, for people."""
    policy_version: int
    """Number of completed learn steps."""
    first_slot: int
    """Number of the client's first slot within the run; the others follow it."""
    seeds: SeedArray
    """Seed of each slot's environment. Shape ``(n,)``."""
    horizon: int = 1
    """Actions answered at once per asking row."""
    last_requests: tuple[int, ...]
    """Last request number the server received in each group; 0 for none."""
    limits: dict[str, Any] = field(default_factory=dict)
    """What the server refuses for its size, by name."""
    timeouts: dict[str, float] = field(default_factory=dict)
    """Seconds: feedback_wait_s, first_step_s, ping_interval_s, ping_timeout_s."""
    assignments: tuple[dict[str, Any], ...] = ()
    """Who plays the first two episodes of each slot."""
    features: tuple[str, ...] = ()
    """The client's features that the server makes use of."""
    restores: bool = False
    """A ``restore`` follows; the client sends no step before it has answered that."""
    continues: bool = False
    """The session named by the hello goes on; what is open in it is open still."""

    def to_wire(self) -> tuple[Header, dict[str, Array]]:
        """Return header and arrays."""
        header: Header = {
            "t": self.TYPE,
            "protocol": self.protocol,
            "session_token": self.session_token,
            "run_id": self.run_id,
            "run_name": self.run_name,
            "policy_version": self.policy_version,
            "first_slot": self.first_slot,
            "horizon": self.horizon,
            "last_requests": self.last_requests,
            "limits": self.limits,
            "timeouts": self.timeouts,
            "assignments": self.assignments,
            "features": self.features,
            "restores": self.restores,
            "continues": self.continues,
        }
        return header, {"seeds": np.asarray(self.seeds, dtype=_U8)}

    @classmethod
    def from_wire(
        cls, header: Header, arrays: Mapping[str, Array], limits: Limits | None = None
    ) -> Welcome:
        """Read a welcome.

        Raises:
            ProtocolError: A field is missing or of another kind.
        """
        bounds = limits or Limits()
        where, name = "welcome", bounds.max_name_length
        timeouts = table(header, "timeouts", where, MAX_NAMES)
        sizes = table(header, "limits", where, MAX_NAMES)
        return cls(
            protocol=integer(header, "protocol", where, low=1),
            session_token=text(header, "session_token", where, name),
            run_id=text(header, "run_id", where, name),
            run_name=text(header, "run_name", where, name),
            policy_version=integer(header, "policy_version", where),
            first_slot=integer(header, "first_slot", where),
            seeds=array(arrays, "seeds", where, _U8, 1),
            horizon=integer(header, "horizon", where, low=1),
            last_requests=integers(header, "last_requests", where, bounds.max_groups),
            limits={key: integer(sizes, key, f"{where}.limits", low=1) for key in sizes},
            timeouts={key: number(timeouts, key, f"{where}.timeouts", 0.0) for key in timeouts},
            assignments=maps(header, "assignments", where, 2 * bounds.max_slots_per_session),
            features=texts(header, "features", where, MAX_NAMES, name),
            restores=optional_flag(header, "restores", where),
            continues=optional_flag(header, "continues", where),
        )


def protocol_range(header: Header) -> tuple[int, int]:
    """Read the protocol range of a hello, which every version of the protocol keeps in its place.

    Raises:
        VersionMismatchError: There is none.
    """
    value = header.get("protocol")
    if type(value) is list and len(value) == 2 and all(type(item) is int for item in value):
        return value[0], value[1]
    raise VersionMismatchError(
        "the hello names no protocol range",
        where="hello.protocol",
        got=brief(value) if "protocol" in header else "nothing",
        expected=f"[oldest, newest]; this server speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}",
        remedy="upgrade the client",
    )


def _space(header: Header, key: str, arrays: Mapping[str, Array]) -> SpaceSpec:
    try:
        return from_data(header.get(key), arrays)
    except MessageDecodeError as error:
        error.where = f"hello.{key}, {error.where}"
        raise


def _column(arrays: Mapping[str, Array], name: str) -> IntArray | None:
    return array(arrays, name, "hello", _I8, 1) if name in arrays else None


def _metrics(header: Header, limits: Limits) -> tuple[EpisodeMetric, ...]:
    given = header.get("episode_metrics")
    if type(given) is not list or len(given) > limits.max_episode_metrics:
        raise MessageDecodeError(
            "a header field is missing or of another kind",
            where="hello.episode_metrics",
            got=brief(given),
            expected=f"a list of at most {limits.max_episode_metrics} metrics",
        )
    return tuple(EpisodeMetric.from_data(item, limits) for item in given)


def _versions(header: Header, max_length: int) -> dict[str, str]:
    versions = table(header, "versions", "hello", MAX_NAMES)
    return {key[:max_length]: text(versions, key, "hello.versions", max_length) for key in versions}
