"""The server half of the protocol: messages in and out as bytes, what happened as events.

It opens no socket, reads no clock and knows no other session. It believes nothing that does not
fit the client's hello, at a cost that does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from royale_client.wire.codec import Parsed, parse, peek
from royale_client.wire.contract import ActionContract, StepContract, check_welcome
from royale_client.wire.errors import (
    FAULT_CODES,
    ContractError,
    LimitError,
    ProtocolError,
    SpaceMismatchError,
    UnexpectedMessageError,
)
from royale_client.wire.grammar import Requests, Side, State, after_welcome, next_state
from royale_client.wire.handshake import RECONNECT, protocol_range
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
    decode_message,
    encode_message,
    message_of,
    message_type,
)
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.probes import Probes
from royale_client.wire.snapshot_rules import Snapshots, check_asking, check_restore
from royale_client.wire.snapshots import Block, as_states
from royale_client.wire.spaces import SpaceSpec, differences
from royale_client.wire.turn_forms import ActionForms, StepForms
from royale_client.wire.turns import DISCOUNT
from royale_client.wire.version import negotiate


class ExpectedSpaces(Protocol):
    """What the run is about; every client must bring the same."""

    @property
    def observation(self) -> SpaceSpec:
        """Space of one slot's observation."""

    @property
    def action(self) -> SpaceSpec:
        """Space of one slot's action."""

    @property
    def masks(self) -> bool:
        """Every asking row comes with a mask of legal actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloReceived:
    """A client introduced itself; answer with welcome, stop or fault."""

    hello: Hello


@dataclass(slots=True, kw_only=True)
class StepReceived:
    """A request that fits the hello; answer it with ``action`` unless the session is stopping."""

    step: Step
    asking: int
    """Number of rows that ask."""
    first: bool
    """The group's first request of this session; its rewards, if any, are of unknown actions."""
    num_bytes: int
    """Size of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReceivedAgain:
    """The last request of a group once more, over another connection.

    If it has no answer yet, that will go to this connection. Otherwise send `last_answer`, or
    `ask_again` and treat it as new.
    """

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReceived:
    """Log records of the client."""

    log: Log


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodbyeReceived:
    """The client leaves in order."""

    goodbye: Goodbye


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedReceived:
    """The answer to the probe that was sent; its arrays are views of the message."""

    probed: Probed


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshottedReceived:
    """The answer to the snapshot that was asked for; its states are views of the message."""

    snapshotted: Snapshotted


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredReceived:
    """The client has restored its environments, or begins fresh episodes."""

    restored: Restored
    to_adopt: bool
    """States were sent and are restored; ``adopt`` the requests that go on with them."""


Event: TypeAlias = (
    HelloReceived
    | StepReceived
    | StepReceivedAgain
    | LogReceived
    | GoodbyeReceived
    | ProbedReceived
    | SnapshottedReceived
    | RestoredReceived
)


@dataclass(slots=True)
class _Sent:
    """The last answer to a group, in case that it did not arrive."""

    data: bytes
    request: int
    assignments: tuple[dict[str, Any], ...]


class ServerSession:
    """One conversation with a client, from hello to goodbye or fault.

    The caller passes in whatever arrives and sends whatever bytes a method returns, in that order.
    A ``ProtocolError`` from ``receive`` ends the session: send ``fault_of(error)`` and close.

    Args:
        limits: What to refuse for its size.
        expected: Spaces of the run; None while no client has set them.
    """

    def __init__(
        self, limits: Limits | None = None, expected: ExpectedSpaces | None = None
    ) -> None:
        self.hello: Hello | None = None
        self.protocol: int | None = None
        self.state = State.OPENED
        self._limits = limits or Limits()
        self._expected = expected
        self._broken = False
        self._steps: StepContract | None = None
        self._step_forms: StepForms | None = None
        self._actions: ActionContract | None = None
        self._action_forms = ActionForms(self._limits)
        self._requests = Requests(())
        self._last_requests: tuple[int, ...] = ()
        self._asking: list[int] = []
        self._answers: list[_Sent | None] = []
        self._probes: Probes | None = None
        self.discount: float | None = None
        """What the learner discounts the frames of the next answers with; None if it does not say.
        Told with a group's answer if the client wants it and the group does not know it yet."""
        self._wants_discount = False
        self._told_discounts: dict[int, float] = {}
        self._snapshots: Snapshots | None = None
        self._has_states = False
        self._to_adopt = False

    def outstanding(self, group: int) -> int | None:
        """Return the number of the group's request that has no answer yet, or None."""
        return self._requests.outstanding(group)

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take one message of the client.

        Returns:
            What happened; empty after a fault, when whatever arrives is discarded.

        Raises:
            ProtocolError: The client broke the protocol; only ``fault`` may be sent any more.
        """
        if self._broken or self.state is State.FAULTED:
            return []
        try:
            if self.state is State.OPENED:
                return [self._receive_hello(data)]
            familiar = self._receive_familiar(data)
            if familiar is not None:
                return [familiar]
            parsed = parse(data, self._limits)
            after = next_state(Side.CLIENT, self.state, message_type(parsed.header))
            if self._steps is not None:
                self._steps.check_packed(parsed.layout)
            message = message_of(parsed)
            event = self._event(message, parsed)
        except ProtocolError:
            self._broken = True
            raise
        self.state = after
        return [event]

    def welcome(self, welcome: Welcome, earlier: ServerSession | None = None) -> bytes:
        """Admit the client.

        Requests are numbered on from ``last_requests``, which all count as answered. If the welcome
        says ``restores``, the next message is a `restore`.

        Args:
            welcome: What the client is told.
            earlier: If the welcome says ``continues``, the session that goes on with this one.

        Raises:
            UnexpectedMessageError: There is no hello to answer.
            ContractError: The welcome does not fit the hello.
        """
        next_state(Side.SERVER, self.state, Welcome.TYPE)
        hello = self._hello()
        if self._probes is not None and self._probes.outstanding is not None:
            raise UnexpectedMessageError("a welcome before the answer to a probe")
        check_welcome(welcome, hello)
        data = encode_message(welcome)
        self._steps = StepContract(hello, self._limits, float16=FLOAT16 in welcome.features)
        self._step_forms = StepForms(self._steps, self._limits)
        self._last_requests = welcome.last_requests
        if earlier is None:
            self._requests = Requests(welcome.last_requests)
            self._asking = [0] * len(welcome.last_requests)
            self._answers = [None] * len(welcome.last_requests)
        else:
            self._requests = earlier._requests.over_another_connection()
            self._asking, self._answers = earlier._asking, earlier._answers
        self._wants_discount = DISCOUNT in welcome.features
        self.state = after_welcome(restores=welcome.restores)
        return data

    @property
    def can_go_on(self) -> bool:
        """Whether another connection could carry this session on."""
        is_able = self.hello is not None and RECONNECT in self.hello.features
        return is_able and self.state is State.READY and not self._broken

    @property
    def last_requests(self) -> tuple[int, ...]:
        """Number of the last request received in each group; 0 for none."""
        return self._requests.last

    def last_answer(self, group: int) -> bytes:
        """Return the answer to the last request of a group, as it was sent.

        Raises:
            UnexpectedMessageError: It has none.
        """
        sent = self._answers[group]
        if sent is None or self._requests.outstanding(group) is not None:
            raise UnexpectedMessageError("there is no answer to send again", where=f"group {group}")
        return sent.data

    def ask_again(self, group: int) -> None:
        """Take the last request of a group as new: its answer never arrived and is of no use.

        The assignments that went with that answer go with the next.
        """
        self._requests.open_again(group)

    def probe(self, number: int, question: str) -> bytes:
        """Ask the client about its environment; it answers before anything else.

        Args:
            number: Names the probe in the answer.
            question: One of ``royale_client.wire.probes.QUESTIONS``.

        Raises:
            UnexpectedMessageError: There is no hello or it is answered already, the client answers
                no probes, or the last one has no answer yet.
        """
        after = next_state(Side.SERVER, self.state, Probe.TYPE)
        assert self._probes is not None, "only after a hello is the state such"
        probe = Probe(number=number, question=question)
        self._probes.ask(probe)
        self.state = after
        return encode_message(probe)

    def restore(self, states: Sequence[Block] = ()) -> bytes:
        """Hand back the states of an earlier snapshot; the client answers before anything else.

        Args:
            states: State of each group; none makes the client begin fresh episodes.

        Raises:
            UnexpectedMessageError: The welcome promised no restore or it was sent already, the
                client cannot use states, or a group has no request to go on with.
            ContractError: Neither one state per group nor none, or an empty one.
            LimitError: The states are larger than a message may be; nothing changed.
        """
        after = next_state(Side.SERVER, self.state, Restore.TYPE)
        check_restore(len(states), self._last_requests, self._hello())
        data = encode_message(Restore(states=as_states(states)))
        if len(data) > self._limits.max_message_bytes:
            raise LimitError(
                "the saved states are larger than a message may be",
                where=Restore.TYPE,
                got=f"{len(data)} bytes",
                expected=f"at most {self._limits.max_message_bytes}",
                remedy="raise the limit on message sizes to what it was",
            )
        self._has_states = bool(states)
        self.state = after
        return data

    def adopt(self, asking: Sequence[int]) -> None:
        """Go on with the last request of each group, as named in the welcome: they are open again.

        Args:
            asking: Rows of each group that ask in its request.

        Raises:
            UnexpectedMessageError: The client has not just said that it restored what it was sent,
                or the session is ending.
            ContractError: ``asking`` does not fit the groups.
        """
        if not self._to_adopt or self.state is not State.READY:
            raise UnexpectedMessageError("there are no restored requests to go on with")
        check_asking(asking, self._hello())
        self._requests.reopen()
        self._asking = list(asking)
        self._to_adopt = False

    def action(
        self,
        group: int,
        request: int,
        policy_version: int,
        actions: Sequence[np.ndarray[Any, np.dtype[Any]]],
        assignments: Sequence[dict[str, Any]] = (),
    ) -> bytes:
        """Answer a group's open request.

        Args:
            group: Index of the group.
            request: Number of the request.
            policy_version: Completed learn steps of the policy that acted.
            actions: Per leaf, one row per asking row, in the exact type of the action space.
            assignments: For each episode that ended, who plays the episode after the next.

        Raises:
            UnexpectedMessageError: That request is not open.
            ContractError: The actions are not one row per asking row, in the space's types.
        """
        lost = self._lost_assignments(group)
        news = self._untold_discount(group)
        if not assignments and not lost and news is None:
            familiar = self._write_familiar(group, request, policy_version, actions)
            if familiar is not None:
                self._answers[group] = _Sent(familiar, request, ())
                return familiar
        after = next_state(Side.SERVER, self.state, Action.TYPE)
        if self._actions is None or self._requests.outstanding(group) != request:
            raise UnexpectedMessageError(
                "an answer to a request that is not open",
                where=f"action, group {group}",
                got=f"request {request}",
            )
        count = self._asking[group]
        self._actions.check(group, request, actions, count)
        answer = Action(
            group=group,
            request=request,
            policy_version=policy_version,
            actions=tuple(actions),
            assignments=(*lost, *assignments),
            discount=news,
        )
        data = encode_message(answer)
        self._action_forms.learn_written(data, answer, count)
        if news is not None:
            self._told_discounts[group] = news
        self._requests.close(group, request)
        self._answers[group] = _Sent(data, request, answer.assignments)
        self.state = after
        return data

    def _lost_assignments(self, group: int) -> tuple[dict[str, Any], ...]:
        """Those of an answer that never arrived, to a request that is open again."""
        sent = self._answers[group] if 0 <= group < len(self._answers) else None
        if sent is None or sent.request != self._requests.outstanding(group):
            return ()
        return sent.assignments

    def _untold_discount(self, group: int) -> float | None:
        """Return the discount if the client wants it and this group does not know it yet."""
        if not self._wants_discount or self._told_discounts.get(group) == self.discount:
            return None
        return self.discount

    def snapshot(self, number: int) -> bytes:
        """Ask the client for the states of its environments as they are now.

        Args:
            number: Names the snapshot in the answer.

        Raises:
            UnexpectedMessageError: The client cannot do that, a snapshot has no answer yet, or a
                group has no open request.
        """
        after = next_state(Side.SERVER, self.state, Snapshot.TYPE)
        if self._snapshots is None:
            raise UnexpectedMessageError("a snapshot before the hello", got=Snapshot.TYPE)
        self._snapshots.ask(number, self._requests)
        self.state = after
        return encode_message(Snapshot(number=number))

    def busy(
        self,
        phase: str,
        since_s: float,
        expected_s: float | None = None,
        waiting_for: str = "",
    ) -> bytes:
        """Tell the client why it waits: the phase, its age and expected rest in seconds."""
        return self._send(
            Busy(phase=phase, since_s=since_s, expected_s=expected_s, waiting_for=waiting_for)
        )

    def stop(self, reason: str, message: str = "") -> bytes:
        """End the session in order; ``reason`` is finished, stopping or halted."""
        return self._send(Stop(reason=reason, message=message))

    def fault(self, code: str, message: str) -> bytes:
        """End the session with an error; the caller closes the connection after sending it.

        Raises:
            ValueError: ``code`` is no fault code.
        """
        if code not in FAULT_CODES:
            raise ValueError(f"fault code {code!r}: expected one of {', '.join(FAULT_CODES)}")
        return self._send(Fault(code=code, message=message))

    def fault_of(self, error: ProtocolError) -> bytes:
        """End the session with the error that ``receive`` raised."""
        return self.fault(error.code, error.sentence)

    def _send(self, message: Message) -> bytes:
        after = next_state(Side.SERVER, self.state, message.TYPE)
        data = encode_message(message)
        self.state = after
        return data

    def _receive_hello(self, data: bytes | bytearray | memoryview) -> Event:
        """Read the protocol range before all else, then judge the rest of the hello."""
        header = peek(data, self._limits)
        after = next_state(Side.CLIENT, self.state, message_type(header))
        protocol = negotiate(*protocol_range(header))
        hello = decode_message(data, self._limits)
        if not isinstance(hello, Hello):
            raise UnexpectedMessageError("the first message is no hello", got=hello.TYPE)
        check_hello(hello, self._limits)
        if self._expected is not None:
            check_spaces(self._expected, hello)
        self.protocol = protocol
        self.hello = hello
        self._actions = ActionContract(hello)
        self._probes = Probes(hello)
        self._snapshots = Snapshots(hello)
        self.state = after
        return HelloReceived(hello=hello)

    def _write_familiar(
        self,
        group: int,
        request: int,
        policy_version: int,
        actions: Sequence[np.ndarray[Any, np.dtype[Any]]],
    ) -> bytes | None:
        """Write an answer that is like an earlier one but for its values, at less cost.

        The last thing is to record it, so that nothing has changed if there is nothing to send.
        """
        if self.state is not State.READY or not 0 <= group < len(self._asking):
            return None
        count = self._asking[group]
        data = self._action_forms.write(group, request, policy_version, actions, count)
        recorded = data is not None and self._requests.closes(group, request)
        return data if recorded else None

    def _receive_familiar(self, data: bytes | bytearray | memoryview) -> StepReceived | None:
        """Take a step that is like an earlier one but for its values, at less cost."""
        if self.state is not State.READY or self._step_forms is None:
            return None
        try:
            found = self._step_forms.read(data)
        except ProtocolError:
            return None
        if found is None:
            return None
        step, asking = found
        if not self._requests.opens(step.group, step.request):
            return None
        self._asking[step.group] = asking
        first = self._requests.is_first(step.group, step.request)
        return StepReceived(step=step, asking=asking, first=first, num_bytes=len(data))

    def _event(self, message: Message, parsed: Parsed) -> Event:
        match message:
            case Step():
                return self._receive_again(message) or self._receive_step(message, parsed)
            case Log():
                return LogReceived(log=message)
            case Goodbye():
                return GoodbyeReceived(goodbye=message)
            case Probed():
                return self._receive_probed(message)
            case Snapshotted():
                return self._receive_snapshotted(message)
            case Restored():
                return self._receive_restored(message)
        raise UnexpectedMessageError(f"{message.TYPE} is no message of a client here")

    def _receive_step(self, step: Step, parsed: Parsed) -> StepReceived:
        if self._steps is None or self._step_forms is None:
            raise UnexpectedMessageError("a step before the welcome", got=Step.TYPE)
        self._requests.open(step.group, step.request)
        first = self._requests.is_first(step.group, step.request)
        asking = self._steps.check(step, first=first)
        self._step_forms.learn(parsed, step, asking)
        self._asking[step.group] = asking
        return StepReceived(step=step, asking=asking, first=first, num_bytes=len(parsed.buffer))

    def _receive_again(self, step: Step) -> StepReceivedAgain | None:
        """Take a request that came before over a connection that is lost, if this is one."""
        if self._steps is None or not self._requests.comes_again(step.group, step.request):
            return None
        first = self._requests.is_first(step.group, step.request)
        asking, before = self._steps.check(step, first=first), self._asking[step.group]
        if asking != before:
            raise ContractError(
                "a request that is sent again is another than it was",
                where=f"step {step.request} of group {step.group}",
                got=f"{asking} rows that ask",
                expected=str(before),
            )
        return StepReceivedAgain(step=step)

    def _receive_probed(self, probed: Probed) -> ProbedReceived:
        if self._probes is None:
            raise UnexpectedMessageError("an answer before the hello", got=Probed.TYPE)
        self._probes.check(probed)
        self._probes.answered()
        return ProbedReceived(probed=probed)

    def _receive_snapshotted(self, snapshotted: Snapshotted) -> SnapshottedReceived:
        if self._snapshots is None:
            raise UnexpectedMessageError("an answer before the hello", got=Snapshotted.TYPE)
        self._snapshots.check(snapshotted)
        self._snapshots.answered()
        return SnapshottedReceived(snapshotted=snapshotted)

    def _receive_restored(self, restored: Restored) -> RestoredReceived:
        goes_on = self.state is State.RESTORING
        self._to_adopt = goes_on and self._has_states and restored.failure is None
        return RestoredReceived(restored=restored, to_adopt=self._to_adopt)

    def _hello(self) -> Hello:
        if self.hello is None:
            raise UnexpectedMessageError("a welcome before the hello", got=Welcome.TYPE)
        return self.hello


def check_spaces(expected: ExpectedSpaces, hello: Hello) -> None:
    """Refuse a client whose spaces are not those of the run.

    Raises:
        SpaceMismatchError: Names every leaf and field that differs, with both values.
    """
    found = [
        f"{name} {line}"
        for name, wanted, given in (
            ("observation space", expected.observation, hello.observation_space),
            ("action space", expected.action, hello.action_space),
        )
        for line in differences(wanted, given)
    ]
    if expected.masks != hello.masks:
        found.append(f"masks: is {hello.masks}, expected {expected.masks}")
    if found:
        raise SpaceMismatchError(
            "; ".join(found),
            where=f"client {hello.client_name!r}",
            remedy="run the environment, version and wrappers of the other clients, or start "
            "another server for this environment",
        )
