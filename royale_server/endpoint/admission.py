"""Who may take part, and what a welcomed client is told.

Pure decisions on hellos: spaces against the run's, room, names. Holds the spaces of the run from
the first hello (or the resumed checkpoint) on.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from algorithms.spaces import Spaces
from royale_client.wire.errors import ProtocolError
from royale_client.wire.handshake import RECONNECT
from royale_client.wire.messages import Hello, Welcome
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.seating import ASSIGNMENTS
from royale_client.wire.snapshots import RESTART, SNAPSHOT
from royale_client.wire.spaces import leaves
from royale_client.wire.turns import DISCOUNT
from royale_client.wire.version import negotiate
from royale_server.config import ServerConfig
from royale_server.endpoint.connection import PING_INTERVAL_S
from royale_server.endpoint.session import check_spaces
from royale_server.scheduler import Role, Scheduler

MAX_SEED_BITS = 31
"""Environments take seeds that fit a signed 32-bit integer, some no larger ones."""


class CapacityError(ProtocolError):
    """The server is full for now."""

    code = "capacity"


class RefusedError(ProtocolError):
    """This run does not take the client."""

    code = "refused"


class Environments(Protocol):
    """What the run remembers of the environments that have taken part."""

    def environment_difference(self, env_id: str, env_digest: str) -> object | None:
        """How one differs from all that took part before the run was resumed; a sentence."""

    def note_environment(self, env_id: str, env_digest: str) -> None:
        """Remember one that takes part."""


class Admission:
    """Decides on hellos.

    Args:
        config: Settings of the server.
        run_id: Identity of the run, told to clients.
        run_name: Its name, told to clients.
        on_first_spaces: Called once with the spaces of the first hello that passes.
        environments: What the run remembers; None remembers nothing.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        run_id: str,
        run_name: str,
        on_first_spaces: Callable[[Spaces], None],
        environments: Environments | None = None,
    ) -> None:
        self._config = config
        self._run_id = run_id
        self._run_name = run_name
        self._on_first_spaces = on_first_spaces
        self._environments = environments
        self.first_hello: Hello | None = None
        """Of the first client that trains."""
        self.spaces: Spaces | None = None
        """Spaces of the run: those of its first client, or of the checkpoint it resumed from."""

    def check(
        self,
        hello: Hello,
        name: str,
        num_sessions: int,
        scheduler: Scheduler | None,
        awaited: Mapping[str, int],
    ) -> None:
        """Refuse a hello that cannot take part.

        Args:
            hello: A well-formed hello.
            name: The client's name in this run.
            num_sessions: Sessions taking part or waiting to.
            scheduler: The scheduler, once there is one.
            awaited: Slots of clients that have a place already, from a checkpoint, by name.

        Raises:
            ProtocolError: Saying what, where, got, expected and the remedy.
        """
        self._check_sessions(num_sessions)
        self._check_room(hello, scheduler, freed=awaited.get(name, 0))
        if name not in awaited:
            self._check_open(hello, scheduler, awaited)
        if self.spaces is not None:
            check_spaces(self.spaces, hello)
        self._refuse_other_build(hello)
        if not self._config.allow_identity_drift:
            self._refuse_drift(hello)

    def _refuse_other_build(self, hello: Hello) -> None:
        """Every client runs the environment of the first one, also when it comes back."""
        difference = self._difference(hello)
        if difference is not None and not self._config.mixed_environments:
            assert self.first_hello is not None, "there is something to differ from"
            raise RefusedError(
                f"the client {difference}",
                where=f"client {hello.client_name!r}, hello.env_digest",
                got=f"{hello.env_id} {hello.env_digest or '(no digest)'}",
                expected=f"{self.first_hello.env_id} {self.first_hello.env_digest or '(no digest)'}"
                f", as of client {self.first_hello.client_name!r}",
                remedy="start every client from the same build with the same arguments and "
                "wrappers, or let the server take several (--mixed-environments)",
            )

    def _refuse_drift(self, hello: Hello) -> None:
        if self._environments is None or Role(hello.role) is not Role.TRAIN:
            return
        difference = self._environments.environment_difference(hello.env_id, hello.env_digest)
        if difference is not None:
            raise RefusedError(
                f"{difference} (its version, arguments or wrappers differ)",
                where="the client's environment",
                remedy="start the client as before, or resume the server with "
                "--allow-identity-drift",
            )

    def admitted(self, hello: Hello) -> None:
        """Remember the environment of a client that takes part."""
        if self._environments is not None and Role(hello.role) is Role.TRAIN:
            self._environments.note_environment(hello.env_id, hello.env_digest)

    def first_spaces(self, hello: Hello) -> None:
        """Fix the spaces of the run by its first client."""
        if self.spaces is None:
            self.spaces = Spaces(
                observation=hello.observation_space, action=hello.action_space, masks=hello.masks
            )
            self._on_first_spaces(self.spaces)

    def noted_difference(self, hello: Hello) -> str | None:
        """Remember the first client; say how the environment of a later one differs, or None.

        Spaces may be equal and dynamics not: a person should know.
        """
        if self.first_hello is None and Role(hello.role) is Role.TRAIN:
            self.first_hello = hello
        return self._difference(hello)

    def _difference(self, hello: Hello) -> str | None:
        first = self.first_hello
        if first is None or Role(hello.role) is not Role.TRAIN:
            return None  # evaluation may well be without a time limit, say
        if hello.env_id != first.env_id:
            return (
                f"runs {hello.env_id}, the first client runs {first.env_id}; one policy learns both"
            )
        if hello.env_digest != first.env_digest:
            return f"runs another version or other settings of {first.env_id} than the first client"
        return None

    def unique_name(self, wanted: str, taken: Iterable[str]) -> str:
        """The client's name, numbered if a connected client has it already.

        Raises:
            RefusedError: In a deterministic run, where the name decides the noise.
        """
        names = set(taken)
        if wanted not in names:
            return wanted
        if self._config.deterministic:
            raise RefusedError(
                f"client name {wanted!r} is taken",
                where="hello.client_name",
                expected="a name of its own for each client of a deterministic run",
                remedy="start it with another --client-name",
            )
        return next(name for n in range(2, 2**31) if (name := f"{wanted}~{n}") not in names)

    def welcome(
        self,
        hello: Hello,
        *,
        name: str,
        first_slot: int,
        first_episode: int,
        policy_version: int,
        assignments: tuple[dict[str, Any], ...] = (),
        last_requests: tuple[int, ...] | None = None,
    ) -> Welcome:
        """What the client is told.

        Args:
            hello: Its hello.
            name: Its name in this run.
            first_slot: Number of its first slot.
            first_episode: Ordinal of the next episode of its slots; keys their seeds.
            policy_version: Completed learn steps.
            assignments: Who plays the first two episodes of its slots; empty if nobody asks.
            last_requests: For a client that takes its place in a checkpoint, the number of each
                group's parked request.
        """
        config = self._config
        return Welcome(
            protocol=negotiate(hello.protocol_min, hello.protocol_max),
            session_token=secrets.token_urlsafe(18),
            run_id=self._run_id,
            run_name=self._run_name,
            policy_version=policy_version,
            first_slot=first_slot,
            seeds=_reset_seeds(config.seed, name, first_episode, hello, is_told=bool(assignments)),
            horizon=1,
            last_requests=last_requests or tuple(0 for _ in hello.groups),
            restores=last_requests is not None and RESTART in hello.features,
            limits={**config.limits().to_data(), "max_slots": config.max_slots},
            timeouts={
                "feedback_wait_s": config.feedback_wait_timeout,
                "first_step_s": config.first_step_timeout,
                "ping_interval_s": PING_INTERVAL_S,
                "ping_timeout_s": config.ping_timeout,
            },
            assignments=assignments,
            features=_used(
                hello,
                follows_assignments=bool(assignments),
                keeps_sessions=config.reconnect_grace > 0,
            ),
        )

    def no_actions(self) -> tuple[npt.NDArray[Any], ...]:
        """Zero actions, for a request in which no row asks."""
        assert self.spaces is not None
        return tuple(np.empty((0, *leaf.shape), leaf.dtype) for leaf in leaves(self.spaces.action))

    def _check_sessions(self, num_sessions: int) -> None:
        if num_sessions >= self._config.max_sessions:
            raise CapacityError(
                f"the server has all {num_sessions} sessions it takes",
                remedy="try again later, or raise --max-sessions on the server",
            )

    def _check_room(self, hello: Hello, scheduler: Scheduler | None, *, freed: int) -> None:
        in_use = 0 if scheduler is None else scheduler.slots_in_use - freed
        if in_use + sum(hello.groups) > self._config.max_slots:
            raise CapacityError(
                f"the client brings {sum(hello.groups)} slots",
                got=f"{in_use} of {self._config.max_slots} slots in use",
                remedy="use fewer environments, or raise --max-slots on the server",
            )

    def _check_open(
        self, hello: Hello, scheduler: Scheduler | None, awaited: Iterable[str]
    ) -> None:
        is_full = scheduler is not None and not scheduler.accepts_train_sessions
        if is_full and Role(hello.role) is Role.TRAIN:
            raise RefusedError(
                "this deterministic run has all its clients",
                got=f"a client named {hello.client_name!r}",
                expected=f"one named {' or '.join(awaited)}" if awaited else "",
                remedy="start the client under one of these names (--client-name)"
                if awaited
                else "start the server with a higher --min-clients",
            )


def _used(hello: Hello, *, follows_assignments: bool, keeps_sessions: bool) -> tuple[str, ...]:
    """Which of the client's features this server makes use of."""
    used = {
        SNAPSHOT: True,
        RESTART: True,
        FLOAT16: True,
        DISCOUNT: True,
        ASSIGNMENTS: follows_assignments,
        RECONNECT: keeps_sessions,
    }
    return tuple(
        feature for feature, is_used in used.items() if is_used and feature in hello.features
    )


def _reset_seeds(
    seed: int, name: str, first_episode: int, hello: Hello, *, is_told: bool
) -> npt.NDArray[np.uint64]:
    """Seeds of a client's slots; in rounds of evaluation two environments each share theirs."""
    seeds = reset_seeds(seed, name, first_episode, hello.num_slots)
    if Role(hello.role) is Role.TRAIN or not is_told or hello.environments is None:
        return seeds
    places = np.unique(hello.environments, return_inverse=True)[1]
    firsts = np.searchsorted(np.sort(places), places // 2 * 2)
    seats = np.zeros_like(places) if hello.seats is None else hello.seats
    paired: npt.NDArray[np.uint64] = seeds[firsts + seats]
    return paired


def reset_seeds(seed: int, name: str, first_episode: int, count: int) -> npt.NDArray[np.uint64]:
    """Reset seeds that depend on nothing but the run's seed, the name, the slot and the episode."""

    def one(slot: int) -> int:
        address = f"{seed}\0{name}\0{slot}\0{first_episode}".encode()
        digest = hashlib.blake2b(address, digest_size=8, person=b"royale-reset").digest()
        return int.from_bytes(digest, "little") >> (64 - MAX_SEED_BITS)

    return np.array([one(slot) for slot in range(count)], np.uint64)
