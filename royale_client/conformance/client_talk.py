"""One conversation with the client under test, and everything that is watched in all of them.

The suite is the server here. It takes requests, answers them with actions that it made up, and
knows what must come back if the client runs the probe.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from royale_client.conformance.incoming import clauses_of_hello, clauses_of_step, read
from royale_client.conformance.link import EndedError, wait_for_end
from royale_client.conformance.listener import Visit
from royale_client.conformance.made_up_actions import made_up_actions
from royale_client.conformance.probe import SEED_MODULUS
from royale_client.conformance.probe_watch import ProbeWatch, is_probe
from royale_client.conformance.scenario import (
    LIMITS,
    NotApplicableError,
    Settings,
    ViolationError,
)
from royale_client.wire.contract import StepContract
from royale_client.wire.errors import ProtocolError
from royale_client.wire.grammar import (
    CLOSE_CODES,
    Requests,
    Side,
    State,
    after_welcome,
    next_state,
)
from royale_client.wire.hello_rules import check_hello
from royale_client.wire.messages import (
    Action,
    Busy,
    Goodbye,
    Hello,
    Log,
    Message,
    Probed,
    Restored,
    Snapshotted,
    Step,
    Stop,
    Welcome,
    encode_message,
)
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.turns import BoolArray
from royale_client.wire.version import PROTOCOL_MAX

Expected = TypeVar("Expected", Probed, Restored, Snapshotted)

SAME = (
    "client_name",
    "process_id",
    "role",
    "env_id",
    "env_digest",
    "groups",
    "masks",
    "episode_metrics",
    "features",
)
"""What stays as it was in the hello of a client that comes back."""

SMALL_SEEDS = 1009
"""Seeds are below this, modulo `SEED_MODULUS`: half precision holds them exactly."""


class ClientTalk:
    """One conversation.

    Args:
        visit: The client's connection, on which nothing was said.
        settings: How patient to be.
        ordinal: Number of the conversation; decides on seeds.
    """

    def __init__(self, visit: Visit, settings: Settings, ordinal: int) -> None:
        self.state = State.OPENED
        self.link = visit.link
        self.hello: Hello
        self.watches: list[ProbeWatch] = []
        """Of each group, if the client runs the probe."""
        self.steps: list[Step | None] = []
        """The open request of each group."""
        self._settings = settings
        self.ordinal = ordinal
        self._requests = Requests(())
        self.watch_step: Callable[[Step], None] = lambda _step: None
        """Called with each request, once it is known to fit its hello."""
        self.told_with_answer: Callable[[int], tuple[dict[str, Any], ...]] = lambda _group: ()
        """Returns the assignments that go with an answer to a group."""
        self._again: list[Step | None] = []
        """Requests of an earlier connection that must come once more, by group."""

    # --- saying -----------------------------------------------------------------------------

    def send(self, message: Message, data: bytes | None = None) -> None:
        """Send a message that is legal now, in these bytes if some are given."""
        self.state = next_state(Side.SERVER, self.state, message.TYPE)
        self.send_raw(encode_message(message) if data is None else data)

    def send_raw(self, data: bytes | str) -> None:
        """Send anything; that the client is gone already is found out by listening."""
        with contextlib.suppress(EndedError):
            self.link.send(data)

    def a_welcome(self, **changes: Any) -> Welcome:  # noqa: ANN401 - fields of a welcome
        """Make up the welcome that fits the client's hello."""
        slots = np.arange(self.hello.num_slots, dtype=np.uint64)
        seeds = (slots * 37 + self.ordinal * 11) % SMALL_SEEDS + SEED_MODULUS * (slots + 1)
        fields: dict[str, Any] = {
            "protocol": PROTOCOL_MAX,
            "session_token": f"conformance-{self.ordinal}",
            "run_id": "conformance",
            "run_name": "conformance",
            "policy_version": 3,
            "first_slot": 40,
            "seeds": seeds.astype(np.uint64),
            "last_requests": (0,) * len(self.hello.groups),
            "limits": LIMITS.to_data(),
            "timeouts": {
                "feedback_wait_s": 60.0,
                "first_step_s": 300.0,
                "ping_interval_s": 20.0,
                "ping_timeout_s": 60.0,
            },
        }
        return Welcome(**(fields | changes))

    def welcome(
        self,
        data: bytes | None = None,
        *,
        bytes_per_frame: int | None = None,
        **changes: Any,  # noqa: ANN401 - fields of a welcome
    ) -> Welcome:
        """Admit the client, and expect its requests from now on.

        Args:
            data: The bytes to send; None encodes the welcome.
            bytes_per_frame: Size of the WebSocket frames in which it travels; None takes one.
            changes: Fields of the welcome that are not as usual.
        """
        welcome = self.a_welcome(**changes)
        data = data or encode_message(welcome)
        if bytes_per_frame is None:
            self.send(welcome, data)
        else:
            self.state = next_state(Side.SERVER, self.state, welcome.TYPE)
            with contextlib.suppress(EndedError):
                self.link.send_in_frames(data, bytes_per_frame)
        self.state = after_welcome(restores=welcome.restores)
        self._requests = Requests(welcome.last_requests)
        self._contract = StepContract(self.hello, LIMITS, float16=FLOAT16 in welcome.features)
        self.steps = [None] * len(self.hello.groups)
        self._again = [None] * len(self.hello.groups)
        self.watches = self._probe_watches(welcome) if is_probe(self.hello) else []
        return welcome

    def continue_from(self, earlier: ClientTalk, *, has_arrived: bool) -> None:
        """Go on with a conversation whose connection was cut while every request was open.

        Args:
            earlier: That conversation.
            has_arrived: What the client is told of these requests: that they came, or not.
        """
        self._again = list(earlier.steps)
        numbers = [step.request for step in earlier.steps if step is not None]
        self.send(
            self.a_welcome(
                last_requests=tuple(number - (not has_arrived) for number in numbers),
                continues=True,
            )
        )
        self._requests = earlier._requests.over_another_connection()
        self._contract, self.watches = earlier._contract, earlier.watches
        self.steps = [None] * len(numbers)

    def answer(self, group: int, encode: Callable[[Message], bytes] = encode_message) -> None:
        """Answer the open request of a group, written by ``encode``."""
        action = self.an_action(group)
        self._requests.close(group, action.request)
        if self.watches:
            self.watches[group].gave(self.asks(group), action.actions[0])
        self.steps[group] = None
        self.send(action, encode(action))

    def an_action(self, group: int) -> Action:
        """Make up the answer to the open request of a group."""
        step = self.the_step(group)
        rows = np.flatnonzero(self.asks(group))
        salt = 5 * step.request + 2 * group
        actions = made_up_actions(self.hello.action_space, rows, salt, step.masks)
        return Action(
            group=group,
            request=step.request,
            policy_version=3,
            actions=actions,
            assignments=self.told_with_answer(group),
        )

    def the_step(self, group: int) -> Step:
        """Return the open request of a group."""
        step = self.steps[group]
        assert step is not None, "there is no open request"
        return step

    def asks(self, group: int) -> BoolArray:
        """Return which rows ask in the open request of a group. Shape ``(n,)``."""
        step = self.the_step(group)
        return np.ones(self.hello.groups[group], np.bool_) if step.asks is None else step.asks

    def stop(self, reason: str, *, listens: bool = False) -> None:
        """Stop the session, hear the goodbye, and close; see `expect_goodbye`."""
        self.send(Stop(reason=reason, message="the scenario is over"))
        self.expect_goodbye(reason, listens=listens)

    # --- hearing ----------------------------------------------------------------------------

    def hear_hello(self) -> None:
        """Take the first message."""
        message = self._next(("P19",), "no hello")
        if not isinstance(message, Hello):
            raise ViolationError(("P19", "P42"), f"{message.TYPE} before the hello")
        try:
            check_hello(message, LIMITS)
        except ProtocolError as error:
            raise ViolationError(clauses_of_hello(error), str(error)) from error
        if not message.protocol_min <= PROTOCOL_MAX <= message.protocol_max:
            text = f"protocols {message.protocol_min} to {message.protocol_max}, not {PROTOCOL_MAX}"
            raise ViolationError(("P19", "P20"), text)
        self.hello = message

    def check_return(self, earlier: ClientTalk) -> None:
        """See that the hello names the earlier conversation, and is of the same client."""
        token = earlier.a_welcome().session_token
        if self.hello.resume_token != token:
            raise ViolationError(("P72",), "the hello of a client that is back names no session")
        changed = [key for key in SAME if getattr(self.hello, key) != getattr(earlier.hello, key)]
        if changed:
            raise ViolationError(("P72",), f"{', '.join(changed)} of a client that is back changed")

    def collect(self) -> None:
        """Take requests until every group has one that is open."""
        while None in self.steps:
            message = self._next(("P25", "P42"), "a step is owed and does not come")
            if not isinstance(message, Step):
                raise ViolationError(("P25",), f"{_shown(message)} where a step is owed")

    def turns(self, count: int) -> None:
        """Take and answer so many requests of every group, and take the next ones."""
        for turn in range(count):
            self.collect()
            # Answers to different groups come in any order.
            order = range(len(self.steps))
            for group in order if turn % 2 else reversed(order):
                self.answer(group)
        self.collect()

    def expect_silence(self, clauses: Sequence[str], what: str) -> None:
        """See that nothing comes but log records."""
        deadline_s = time.monotonic() + self._settings.quiet_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                data = self.link.receive(left_s)
            except EndedError as ended:
                raise ViolationError(clauses, f"{what}: {ended}") from ended
            if data is None:
                return
            message = read(data)
            if not isinstance(message, Log):
                raise ViolationError(clauses, f"{what}: {_shown(message)}")

    def expect_pong(self) -> None:
        """See that a ping is answered."""
        try:
            answers = self.link.answers_ping(self._settings.timeout_s)
        except EndedError as ended:
            raise ViolationError(("P38",), f"a client that waits: {ended}") from ended
        if not answers:
            raise ViolationError(("P38",), "no answer to a ping while the client waits")

    def expect(self, kind: type[Expected], clauses: Sequence[str]) -> Expected:
        """Take the next message, which must be of this kind."""
        message = self._next(clauses, f"{kind.TYPE} is owed and does not come")
        if not isinstance(message, kind):
            raise ViolationError(clauses, f"{_shown(message)} where {kind.TYPE} is owed")
        return message

    def expect_goodbye(self, reason: str, *, listens: bool = False) -> None:
        """See that the client takes its leave after a stop, and close.

        Args:
            reason: Of the stop.
            listens: Whether to see, before that, that nothing follows the goodbye.
        """
        clauses = ("P43", "P44")
        while True:
            message = self._next(clauses, f"no goodbye after stop {reason}")
            if isinstance(message, Goodbye):
                break
            if not isinstance(message, Step):
                raise ViolationError(clauses, f"{_shown(message)} after stop {reason}")

        def on_message(data: bytes | str) -> None:
            raise ViolationError(("P42", "P44"), f"{_shown(read(data))} after the goodbye")

        if listens:
            wait_for_end(self.link, self._settings.quiet_s, on_message)
        self.link.close(CLOSE_CODES[reason], reason)

    def expect_departure(
        self, clauses: Sequence[str], what: str, *, may_speak: bool = True
    ) -> None:
        """See that the client leaves, and carries nothing out before.

        Args:
            clauses: What the suite broke, so that the client must not believe it; or what demands
                that it goes.
            what: What the suite sent, for the report.
            may_speak: Whether it may still send log records and a goodbye.
        """

        def on_message(data: bytes | str) -> None:
            message = read(data)
            if not (may_speak and isinstance(message, Log | Goodbye)):
                raise ViolationError(clauses, f"{what}, and the client sends {_shown(message)}")

        ended = wait_for_end(self.link, self._settings.timeout_s, on_message)
        if ended is None:
            limit = f"{self._settings.timeout_s:g} s"
            raise ViolationError(clauses, f"{what}, and the client is still there after {limit}")
        self.state = State.LEFT

    def needs(self, *features: str) -> None:
        """Go on only with a client that has these features."""
        missing = [name for name in features if name not in self.hello.features]
        if missing:
            raise NotApplicableError(f"the client has not the feature {missing[0]}")

    def lacks(self, feature: str) -> None:
        """Go on only with a client that has not this feature."""
        if feature in self.hello.features:
            raise NotApplicableError(f"the client has the feature {feature}")

    def go_on(self, steps: Sequence[Step | None], watches: Sequence[ProbeWatch]) -> None:
        """Take the requests of an earlier conversation as open, and the probe as it stood then."""
        self._requests.reopen()
        self.steps, self.watches = list(steps), list(watches)

    def say_busy(self, expected_s: float | None) -> None:
        """Say why the client waits."""
        self.send(Busy(phase="learn", since_s=1.5, expected_s=expected_s, waiting_for="the suite"))

    def _next(self, clauses: Sequence[str], complaint: str) -> Message:
        """Take the next message but ``log``, if it may come now."""
        while True:
            try:
                data = self.link.receive(self._settings.timeout_s)
            except EndedError as ended:
                raise ViolationError(clauses, f"{complaint}: {ended}") from ended
            if data is None:
                waited = f"nothing came for {self._settings.timeout_s:g} s"
                raise ViolationError(clauses, f"{complaint}: {waited}")
            message = read(data)
            try:
                self.state = next_state(Side.CLIENT, self.state, message.TYPE)
            except ProtocolError as error:
                raise ViolationError(("P42",), str(error)) from error
            if isinstance(message, Step):
                self._take(message)
            if not isinstance(message, Log):
                return message

    def _take(self, step: Step) -> None:
        try:
            self._requests.open(step.group, step.request)
        except ProtocolError as error:
            raise ViolationError(("P33",), str(error)) from error
        first = self._requests.is_first(step.group, step.request)
        try:
            self._contract.check(step, first=first)
        except ProtocolError as error:
            raise ViolationError(clauses_of_step(error), str(error)) from error
        self.watch_step(step)
        before, self._again[step.group] = self._again[step.group], None
        if before is not None:
            _check_same(step, before)
        elif self.watches:
            self.watches[step.group].check(step)
        self.steps[step.group] = step

    def _probe_watches(self, welcome: Welcome) -> list[ProbeWatch]:
        seeds, watches = welcome.seeds.tolist(), []
        for group, rows in enumerate(self.hello.groups):
            watches.append(ProbeWatch(group, seeds[:rows]))
            seeds = seeds[rows:]
        return watches


def _check_same(step: Step, before: Step) -> None:
    """See that a request that comes once more holds all it held."""
    if step.request != before.request:
        text = f"step {step.request}, where {before.request} has no answer"
        raise ViolationError(("P74",), text)
    (header, arrays), (header_before, arrays_before) = step.to_wire(), before.to_wire()
    records = header.get("episodes"), header_before.get("episodes")
    differs = set(arrays) ^ set(arrays_before) or [
        name for name in arrays if not np.array_equal(arrays[name], arrays_before[name])
    ]
    if differs or records[0] != records[1]:
        what = ", ".join(sorted(differs)) or "episodes"
        raise ViolationError(("P74",), f"step {step.request} comes again with another {what}")


def _shown(message: Message) -> str:
    match message:
        case Goodbye(reason=reason, exception=exception):
            return f"goodbye ({exception or reason})"
        case Step(group=group, request=request):
            return f"step {request} of group {group}"
    return message.TYPE
