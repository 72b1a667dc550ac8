"""The client half of the protocol: messages in and out as bytes, what happened as events.

It opens no socket and reads no clock. It numbers requests, refuses to send what the server would
refuse, and refuses to believe a server that breaks the protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from royale_client.wire.codec import Parsed, parse
from royale_client.wire.contract import ActionContract, StepContract, check_welcome
from royale_client.wire.episode_room import fitted, record_room
from royale_client.wire.episodes import clean_record
from royale_client.wire.errors import (
    ContractError,
    LimitError,
    ProtocolError,
    UnexpectedMessageError,
)
from royale_client.wire.grammar import Requests, Side, State, after_welcome, next_state
from royale_client.wire.handshake import RECONNECT
from royale_client.wire.hello_rules import check_hello
from royale_client.wire.limits import Limits
from royale_client.wire.messages import (
    Action,
    Busy,
    Fault,
    Goodbye,
    Hello,
    Log,
    Message,
    Probe,
    Probed,
    Restore,
    Restored,
    Snapshot,
    Snapshotted,
    Step,
    Stop,
    Welcome,
    encode_message,
    message_of,
    message_type,
)
from royale_client.wire.narrowing import FLOAT16, Narrowing
from royale_client.wire.probes import ProbeAnswer, Probes
from royale_client.wire.snapshot_rules import Snapshots, check_asking, check_restore
from royale_client.wire.snapshots import Block, as_states
from royale_client.wire.turn_forms import ActionForms, StepForms

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcomed:
    """The server admitted the client; turns may begin."""

    welcome: Welcome


@dataclass(slots=True, kw_only=True, eq=False)
class Answered:
    """The open request of a group has its answer; the actions are read-only views."""

    group: int
    request: int
    policy_version: int
    actions: tuple[np.ndarray[Any, np.dtype[Any]], ...]
    assignments: tuple[dict[str, Any], ...]
    discount: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBusy:
    """The server says what it is doing meanwhile."""

    busy: Busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The server ends the session in order; say goodbye and close."""

    stop: Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """The server ends the session because of an error; close."""

    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAsked:
    """The server wants the environments as they are now; answer with `snapshotted` at once."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestoreAsked:
    """The server hands back what was saved; answer with `restored` before anything else."""

    states: tuple[np.ndarray[Any, np.dtype[np.uint8]], ...]
    """State of each group, read-only views; none if the episodes are to begin afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAsked:
    """The server asks about the environment; answer with `probed` before anything else."""

    number: int
    question: str


Event: TypeAlias = (
    Welcomed | Answered | ServerBusy | Stopped | Faulted | ProbeAsked | SnapshotAsked | RestoreAsked
)


_CROWDED = "episodes of one step"
"""What is warned of once when their records do not fit."""


class ClientSession:
    """One conversation with a server, from hello to goodbye.

    The caller sends whatever bytes a method returns, in that order, and passes in whatever
    arrives. After a ``ProtocolError`` from ``receive`` the server is broken: close.

    Args:
        hello: Who the client is; checked at once.
        limits: What to refuse from the server for its size.
        earlier: The session whose connection was lost, to go on with it if the server agrees.

    Raises:
        ProtocolError: The hello contradicts itself.
    """

    def __init__(
        self, hello: Hello, limits: Limits | None = None, earlier: ClientSession | None = None
    ) -> None:
        self._earlier = earlier if earlier is not None and earlier.can_go_on else None
        if self._earlier is not None and self._earlier.welcome is not None:
            hello = replace(hello, resume_token=self._earlier.welcome.session_token)
        self.hello = hello
        self.welcome: Welcome | None = None
        self.state = State.OPENED
        self._limits = limits or Limits()
        check_hello(hello, self._limits)
        self._agree(float16=False)
        self._actions = ActionContract(hello)
        self._action_forms = ActionForms(self._limits)
        self._requests = Requests([0] * len(hello.groups))
        self._asking = [0] * len(hello.groups)
        self._probes = Probes(hello)
        self._snapshots = Snapshots(hello)
        self._has_states = False
        self._send_limit = self._limits.max_message_bytes
        self._header_limit = self._limits.max_header_bytes
        self._warned: set[str] = set()

    def start(self) -> bytes:
        """Say hello. The server answers with a welcome, a stop or a fault."""
        return self._send(self.hello)

    @property
    def can_go_on(self) -> bool:
        """Whether another connection could carry this session on."""
        return self.state is State.READY and RECONNECT in self.hello.features

    def outstanding(self, group: int) -> int | None:
        """Return the number of the group's request that has no answer yet, or None."""
        return self._requests.outstanding(group)

    def unread(self, answer: Answered) -> None:
        """Take back that an answer was received: nobody acts on it, so it is asked for again."""
        self._requests.open_again(answer.group)

    def step(
        self,
        group: int,
        *,
        observations: Sequence[np.ndarray[Any, np.dtype[Any]]],
        asks: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
        masks: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
        rewards: np.ndarray[Any, np.dtype[Any]] | None = None,
        terminated: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
        truncated: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
        final_observations: Sequence[np.ndarray[Any, np.dtype[Any]]] | None = None,
        episodes: Sequence[Mapping[str, Any]] = (),
        env_time_s: float = 0.0,
    ) -> bytes:
        """Report what the group's last actions led to and ask for the next ones.

        Args:
            group: Index of the group.
            observations: Per leaf, the rows that ask. Shape ``(m, *leaf)``.
            asks: Which of the group's rows ask. Shape ``(n,)``; None if all do.
            masks: Legal actions of the asking rows. Shape ``(m, mask_size)``, if declared.
            rewards: Reward of each row's last action. Shape ``(n,)``; None before the first.
            terminated: Episode ended by itself. Shape ``(n,)``; None with ``rewards``.
            truncated: Episode was cut. Shape ``(n,)``; None with ``rewards``.
            final_observations: Per leaf, the rows that ended, before any reset. Shape
                ``(e, *leaf)``; None if none ended.
            episodes: One record per ended episode; its metrics may be any mapping, of which the
                declared names are sent (one warning per name that cannot be).
            env_time_s: Seconds the environments took.

        Returns:
            The message to send.

        Raises:
            UnexpectedMessageError: No welcome yet, or the group's last request has no answer, and
                this is not a session that goes on and asks for that one again.
            ContractError: The arrays do not fit the hello, or float16 was agreed on and cannot hold
                one of their numbers; nothing was sent and nothing changed.
            LimitError: The message would be larger than the server allows.
        """
        after = next_state(Side.CLIENT, self.state, Step.TYPE)
        if self._narrowing is not None:
            observations = self._narrowing.narrow(observations, "observations")
            if final_observations is not None:
                final_observations = self._narrowing.narrow(
                    final_observations, "final observations"
                )
        step = Step(
            group=group,
            request=self._requests.next_number(group),
            asks=asks,
            observations=tuple(observations),
            masks=masks,
            rewards=None if rewards is None else np.asarray(rewards, dtype=np.float64),
            terminated=terminated,
            truncated=truncated,
            final_observations=None if final_observations is None else tuple(final_observations),
            episodes=self._clean(episodes) if episodes else (),
            env_time_s=env_time_s,
        )
        data, asking = self._write_familiar(step) or self._write_step(step)
        _check_size(Step.TYPE, data, self._send_limit)
        self.state = after
        self._requests.open(group, step.request)
        self._asking[group] = asking
        return data

    def snapshotted(
        self, number: int, states: Sequence[Block] = (), failure: str | None = None
    ) -> bytes:
        """Hand the server the states it asked for, or say why there are none.

        Args:
            number: Number of the snapshot that was asked for.
            states: State of each group, at least one byte; none with a failure.
            failure: Why there is no snapshot, as a sentence.

        Raises:
            UnexpectedMessageError: That snapshot was not asked for.
            ContractError: Another number of states than groups, or an empty one.
            LimitError: The states are larger than the server takes, or than this client would take
                back; nothing changed, so that a failure can be told instead.
        """
        after = next_state(Side.CLIENT, self.state, Snapshotted.TYPE)
        message = Snapshotted(number=number, states=as_states(states), failure=failure)
        self._snapshots.check(message)
        data = self._encode(message, self._limits.max_message_bytes)
        self.state = after
        self._snapshots.answered()
        return data

    def restored(self, failure: str | None = None, asking: Sequence[int] | None = None) -> bytes:
        """Tell the server that the environments are restored, or that episodes begin afresh.

        Args:
            failure: Why the states could not be used, as a sentence.
            asking: Rows of each group that ask in its restored turn. Given exactly if states came
                and were restored: the groups' last requests are open then, and will be answered.

        Raises:
            UnexpectedMessageError: No restore was asked for.
            ContractError: ``asking`` does not fit the groups.
            ValueError: ``asking`` is missing, or there is nothing that was restored.
        """
        after = next_state(Side.CLIENT, self.state, Restored.TYPE)
        if (asking is not None) != (self._has_states and failure is None):
            raise ValueError("asking rows go with states that were restored, and with nothing else")
        if asking is not None:
            check_asking(asking, self.hello)
        data = self._encode(Restored(failure=failure))
        self.state = after
        if asking is not None:
            self._requests.reopen()
            self._asking = list(asking)
        return data

    def probed(
        self, number: int, answer: ProbeAnswer | None = None, failure: str | None = None
    ) -> bytes:
        """Answer a probe, or say why there is no answer.

        Args:
            number: Number of the probe.
            answer: What the environment says; None with a failure.
            failure: Why there is no answer, as a sentence.

        Raises:
            UnexpectedMessageError: That probe was not sent.
            ContractError: The answer does not fit the question; nothing changed, so that a failure
                can be told instead.
            LimitError: The answer is larger than a message may be; likewise.
        """
        after = next_state(Side.CLIENT, self.state, Probed.TYPE)
        message = Probed(number=number, answer=answer or ProbeAnswer(), failure=failure)
        self._probes.check(message)
        data = self._encode(message)
        self.state = after
        self._probes.answered()
        return data

    def log(self, records: Sequence[Mapping[str, Any]], dropped: int = 0) -> bytes:
        """Send log records; each has ``time_s``, ``level``, ``logger`` and ``message``."""
        return self._send(Log(records=tuple(dict(record) for record in records), dropped=dropped))

    def goodbye(self, reason: str, exception: str | None = None) -> bytes:
        """Leave; the caller closes the connection after sending this."""
        return self._send(Goodbye(reason=reason, exception=exception))

    def receive(self, data: bytes) -> list[Event]:
        """Take one message of the server.

        Returns:
            What happened; empty once the session is over.

        Raises:
            ProtocolError: The server broke the protocol; close the connection.
        """
        if self.state in (State.LEFT, State.FAULTED):
            return []
        try:
            familiar = self._receive_familiar(data)
            if familiar is not None:
                return [familiar]
            parsed = parse(data, self._limits)
            after = next_state(Side.SERVER, self.state, message_type(parsed.header))
            message = message_of(parsed)
            self.state = after
            return [self._event(message, parsed)]
        except ProtocolError:
            self.state = State.LEFT
            raise

    def _receive_familiar(self, data: bytes) -> Answered | None:
        """Take an answer that is like an earlier one but for its values, at less cost."""
        if self.state is not State.READY:
            return None
        try:
            found = self._action_forms.read(data)
        except ProtocolError:
            return None
        if found is None:
            return None
        action, count = found
        if count != self._asking[action.group]:
            return None
        if not self._requests.closes(action.group, action.request):
            return None
        return _answered(action)

    def _event(self, message: Message, parsed: Parsed) -> Event:
        match message:
            case Action():
                return self._answered(message, parsed)
            case Welcome():
                return self._welcomed(message)
            case Busy():
                return ServerBusy(busy=message)
            case Stop():
                return Stopped(stop=message)
            case Fault():
                return Faulted(fault=message)
            case Probe() | Snapshot() | Restore():
                return self._asked(message)
        raise UnexpectedMessageError(f"{message.TYPE} is no message of a server")

    def _answered(self, action: Action, parsed: Parsed) -> Answered:
        self._requests.close(action.group, action.request)
        count = self._asking[action.group]
        self._actions.check(action.group, action.request, action.actions, count)
        self._action_forms.learn(parsed, action, count)
        return _answered(action)

    def _welcomed(self, welcome: Welcome) -> Welcomed:
        if self._probes.outstanding is not None:
            raise UnexpectedMessageError("a welcome before the answer to a probe")
        check_welcome(welcome, self.hello)
        self.welcome = welcome
        if FLOAT16 in welcome.features:
            self._agree(float16=True)
        elif FLOAT16 in self.hello.features:
            logger.warning("the server takes no float16 observations; they are sent in full")
        self.state = after_welcome(restores=welcome.restores)
        self._requests = self._requests_of(welcome)
        self._send_limit = welcome.limits.get("max_message_bytes", self._send_limit)
        self._header_limit = welcome.limits.get("max_header_bytes", self._header_limit)
        return Welcomed(welcome=welcome)

    def _requests_of(self, welcome: Welcome) -> Requests:
        """Return where the numbers of the requests stand."""
        if not welcome.continues:
            self._earlier = None
            return Requests(welcome.last_requests)
        assert self._earlier is not None, "the hello named a session"
        requests, self._earlier = self._earlier._requests, None
        if not requests.are_known_as(welcome.last_requests):
            raise ContractError(
                "the server goes on with another session than this one",
                where="welcome.last_requests",
                got=str(welcome.last_requests),
                expected=f"{requests.last}, or one less where there was no answer",
            )
        return requests.over_another_connection()

    def _agree(self, *, float16: bool) -> None:
        """Settle in which types observations travel."""
        space = self.hello.observation_space
        self._narrowing = Narrowing(space) if float16 else None
        self._steps = StepContract(self.hello, self._limits, float16=float16)
        self._step_forms = StepForms(self._steps, self._limits)

    def _asked(self, message: Probe | Snapshot | Restore) -> Event:
        if isinstance(message, Probe):
            self._probes.ask(message)
            return ProbeAsked(number=message.number, question=message.question)
        if isinstance(message, Snapshot):
            self._snapshots.ask(message.number, self._requests)
            return SnapshotAsked(number=message.number)
        assert self.welcome is not None
        check_restore(len(message.states), self.welcome.last_requests, self.hello)
        self._has_states = bool(message.states)
        return RestoreAsked(states=message.states)

    def _clean(self, episodes: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
        """Make episode records sendable; say once per sentence what had to be dropped."""
        records = []
        for episode in episodes:
            record, problems = clean_record(episode, self.hello.episode_metrics)
            if record is not None:
                records.append(record)
            for name, problem in problems.items():
                if name not in self._warned:
                    self._warned.add(name)
                    logger.warning("%s (said once)", problem)
        kept, left_out = fitted(records, record_room(self._header_limit))
        num_missing = len(records) - len(kept)
        if (left_out or num_missing) and _CROWDED not in self._warned:
            self._warned.add(_CROWDED)
            logger.warning(
                "%d episodes ended in one step: %d of their metrics are left out, those declared "
                "last, and %d records, those of the last rows; with fewer environments a client "
                "none would be (said once)",
                len(records),
                left_out,
                num_missing,
            )
        return kept

    def _send(self, message: Message) -> bytes:
        after = next_state(Side.CLIENT, self.state, message.TYPE)
        data = self._encode(message)
        self.state = after
        return data

    def _write_familiar(self, step: Step) -> tuple[bytes, int] | None:
        """Write a step that is like an earlier one but for its values, at less cost."""
        try:
            return self._step_forms.write(step)
        except ProtocolError:
            return None

    def _write_step(self, step: Step) -> tuple[bytes, int]:
        first = self._requests.is_first(step.group, step.request)
        asking = self._steps.check(step, first=first)
        data = encode_message(step)
        self._step_forms.learn_written(data, step, asking)
        return data, asking

    def _encode(self, message: Message, own_limit: int | None = None) -> bytes:
        data = encode_message(message)
        limit = self._send_limit if own_limit is None else min(self._send_limit, own_limit)
        _check_size(message.TYPE, data, limit)
        return data


def _answered(action: Action) -> Answered:
    return Answered(
        group=action.group,
        request=action.request,
        policy_version=action.policy_version,
        actions=action.actions,
        assignments=action.assignments,
        discount=action.discount,
    )


def _check_size(kind: str, data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise LimitError(
            "the message is larger than the server allows",
            where=kind,
            got=f"{len(data)} bytes",
            expected=f"at most {limit}",
            remedy="use fewer environments per client, or raise the server's limit",
        )
