"""What a server is tried with that it must take; what it must refuse stands in ``server_refusals``.

Further groups of scenarios are further tables that ``SCENARIOS`` joins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from royale_client.conformance.link import EndedError, RefusedError
from royale_client.conformance.raw_messages import loosely_laid_out
from royale_client.conformance.scenario import NotApplicableError, Scenario, ViolationError
from royale_client.conformance.server_refusals import REFUSALS
from royale_client.conformance.server_resumes import RESUMES
from royale_client.conformance.server_seats import ASKED_FIRST, SEATS
from royale_client.conformance.server_stage import ServerUnderTest
from royale_client.wire.codec import encode
from royale_client.wire.limits import Limits
from royale_client.wire.messages import EpisodeMetric, Log
from royale_client.wire.narrowing import FLOAT16
from royale_client.wire.spaces import BoxSpec
from royale_client.wire.version import SUBPROTOCOL

TIMEOUTS = ("feedback_wait_s", "first_step_s", "ping_interval_s", "ping_timeout_s")


def _subprotocol(server: ServerUnderTest) -> None:
    with server.talk() as talk:
        if talk.link.subprotocol != SUBPROTOCOL:
            raise ViolationError(("P1",), f"the subprotocol is {talk.link.subprotocol}")
        if talk.link.extensions:
            raise ViolationError(("P1",), f"extensions: {', '.join(talk.link.extensions)}")


def _other_subprotocol(server: ServerUnderTest) -> None:
    for offered in ((), ("royale.v0",)):
        what = f"a client that offers {' and '.join(offered) or 'no subprotocol'}"
        try:
            with server.opened(subprotocols=offered) as link:
                link.receive(server.settings.quiet_s)
        except (RefusedError, EndedError):
            continue
        raise ViolationError(("P1",), f"{what} is taken")


def _token(server: ServerUnderTest) -> None:
    if server.settings.token is None:
        raise NotApplicableError("no token was given for this server")
    for token in (None, "x" + server.settings.token, server.settings.token[:-1]):
        try:
            with server.opened(token=token):
                pass
        except RefusedError as error:
            if error.status != 401:
                raise ViolationError(("P2",), f"a wrong token: {error}, expected 401") from error
        else:
            raise ViolationError(("P2",), "a wrong or missing token is taken")


def _silence(server: ServerUnderTest) -> None:
    with server.talk() as talk:
        talk.expect_silence(("P19", "P42"), "before the hello")


def _welcome(server: ServerUnderTest) -> None:
    with server.talk() as talk:
        welcome = talk.greet()
        facts = {
            "session_token": bool(welcome.session_token),
            "run_id": bool(welcome.run_id),
            "last_requests": set(welcome.last_requests) == {0},
            "timeouts": set(TIMEOUTS) <= set(welcome.timeouts),
            "limits": set(Limits().to_data()) <= set(welcome.limits),
        }
        wrong = [key for key, holds in facts.items() if not holds]
        if wrong:
            shown = "; ".join(f"{key} is {getattr(welcome, key)!r}" for key in wrong)
            raise ViolationError(("P24",), f"the welcome of a new client: {shown}")
        if welcome.features or welcome.assignments or welcome.restores:
            text = "features, assignments or restores for a client that has no feature"
            raise ViolationError(("P24", "P57", "P65"), text)
        talk.leave()


def _turns(server: ServerUnderTest) -> None:
    with server.session() as talk:
        for _ in range(server.settings.turns):
            talk.turn(talk.groups[0].next_step())


def _groups(server: ServerUnderTest) -> None:
    # Two sizes, so that exchanged answers do not fit.
    with server.session(replace(server.hello(), groups=(3, 2))) as talk:
        for _ in range(server.settings.turns):
            for group in talk.groups:
                talk.send(group.next_step())
            answered = {talk.expect_answer().group for _ in talk.groups}
            if answered != {0, 1}:
                raise ViolationError(("P35",), f"two open requests, answers to {answered}")


def _asks(server: ServerUnderTest) -> None:
    with server.session() as talk:
        group = talk.groups[0]
        for silent in ((), (0,), (1,), (2,), (0, 2), (0, 1, 2), (1, 2), (0, 1, 2), ()):
            talk.turn(group.next_step(silent=silent))


def _unused_bits(server: ServerUnderTest) -> None:
    with server.session() as talk:
        group = talk.groups[0]
        talk.turn(group.next_step())
        step = group.next_step(silent=(1,))
        header, arrays = step.to_wire()
        arrays["asks"] = arrays["asks"] | 0x1F  # three rows leave five bits over
        arrays["masks"] = arrays["masks"] | np.array(
            [0, 0x1F], np.uint8
        )  # and eleven actions as many
        talk.turn(step, encode(header, arrays))


def _endings(server: ServerUnderTest) -> None:
    with server.session() as talk:
        group = talk.groups[0]
        talk.turn(group.next_step())
        talk.turn(group.next_step(terminated=(0,), records=True))
        talk.turn(group.next_step(truncated=(1,), terminated=(1, 2), records=True))
        talk.turn(group.next_step(terminated=(0,), silent=(0,), records=True))
        talk.turn(group.next_step(silent=()))
        talk.turn(group.next_step(truncated=(0, 1, 2), silent=(0, 1, 2)))
        talk.turn(group.next_step())


def _metrics(server: ServerUnderTest) -> None:
    metrics = (
        EpisodeMetric("height", "m", "all", "mean"),
        EpisodeMetric("hits", "1", "all", "ratio"),
        EpisodeMetric("rooms", "1", "all", "count"),
        EpisodeMetric("wins", "1", "all", "share"),
        EpisodeMetric("moves", "1", "all", "categories"),
    )
    with server.session(replace(server.hello(), episode_metrics=metrics)) as talk:
        group = talk.groups[0]
        talk.turn(group.next_step())
        step = group.next_step(terminated=(0, 1), records=True)
        whole = {"hits": [1, 2.0], "rooms": [0, 3, 1], "wins": [0, 1], "moves": [5, 5, 65535]}
        values = ({"height": 1.5, **whole}, {"height": -1})
        episodes = [
            record | {"metrics": known} for record, known in zip(step.episodes, values, strict=True)
        ]
        talk.turn(replace(step, episodes=tuple(episodes)))


def _loose_layout(server: ServerUnderTest) -> None:
    with server.talk() as talk:
        talk.greet(loosely_laid_out(talk.hello))
        group = talk.groups[0]
        talk.turn(group.next_step())
        step = group.next_step(silent=(0,), terminated=(1,))
        talk.turn(step, loosely_laid_out(step))
        talk.leave()


def _rounded_bounds(server: ServerUnderTest) -> None:
    with server.session() as first:
        space = first.hello.observation_space
        assert isinstance(space, BoxSpec)
        near = BoxSpec(space.low * (1 + 2**-24), space.high * (1 - 2**-24), (4,), "float32")
        with server.session(replace(server.hello(), observation_space=near)) as second:
            for talk in (first, second):
                talk.send(talk.groups[0].next_step())
            for talk in (first, second):
                talk.expect_answer()


def _logs(server: ServerUnderTest) -> None:
    record = {"time_s": 1.5, "level": "INFO", "logger": "probe", "message": "all is well"}
    with server.session() as talk:
        talk.send(Log(records=(record, record), dropped=3))
        talk.turn(talk.groups[0].next_step())
        talk.send(Log(records=()))
        talk.turn(talk.groups[0].next_step())


def _evaluation(server: ServerUnderTest) -> None:
    with server.session(replace(server.hello(), role="eval")) as talk:
        for _ in range(3):
            talk.turn(talk.groups[0].next_step())


def _unknown_features(server: ServerUnderTest) -> None:
    features = ("restart", "x-of-tomorrow")
    with server.session(replace(server.hello(), features=features)) as talk:
        strange = set(talk.welcome.features) - {"restart"}
        if strange:
            raise ViolationError(("P24",), f"the server makes use of {', '.join(strange)}")
        talk.turn(talk.groups[0].next_step())


def _float16(server: ServerUnderTest) -> None:
    with server.session(replace(server.hello(), features=(FLOAT16,))) as talk:
        group = talk.groups[0]
        talk.turn(group.next_step())
        talk.turn(group.next_step(terminated=(0,)))
        talk.turn(group.next_step())


def _pings(server: ServerUnderTest) -> None:
    with server.session() as talk:
        talk.turn(talk.groups[0].next_step())
        talk.expect_pong()


def _early_goodbye(server: ServerUnderTest) -> None:
    with server.session() as talk:
        talk.say_goodbye()


def _open_goodbye(server: ServerUnderTest) -> None:
    with server.session() as talk:
        talk.send(talk.groups[0].next_step())
        talk.say_goodbye()


def _bystander(server: ServerUnderTest) -> None:
    with server.session() as bystander:
        group = bystander.groups[0]
        bystander.turn(group.next_step())
        for name in ("text-message", "second-hello", "wrong-dtype", "other-spaces-n"):
            _of_name(name)(server)
            bystander.turn(group.next_step())


def _of_name(name: str) -> Callable[[ServerUnderTest], None]:
    return next(scenario.play for scenario in REFUSALS if scenario.name == name)


def _vanished(server: ServerUnderTest) -> None:
    with server.talk() as talk:
        talk.greet()
        talk.turn(talk.groups[0].next_step())
        talk.send(talk.groups[0].next_step())
    with server.session() as talk:
        talk.turn(talk.groups[0].next_step())


_TABLE: tuple[tuple[str, tuple[str, ...], str, Callable[[ServerUnderTest], None]], ...] = (
    ("subprotocol", ("P1",), "agrees to royale.v1 and to no extension", _subprotocol),
    ("other-subprotocol", ("P1",), "takes no client that offers another", _other_subprotocol),
    ("token", ("P2",), "answers a wrong or missing token with 401", _token),
    ("client-speaks-first", ("P19", "P42"), "is silent until the hello", _silence),
    ("welcome", ("P24", "P48"), "tells a new client all it must know", _welcome),
    ("turns", ("P34",), "answers each request once, row by row", _turns),
    ("two-groups", ("P35",), "answers two open requests, each its own", _groups),
    ("asks", ("P26", "P28"), "answers the rows that ask, even none", _asks),
    ("unused-bits", ("P26", "P29"), "ignores the bits that are left over", _unused_bits),
    ("endings", ("P27", "P30", "P31"), "takes every kind of ending and reset", _endings),
    ("episode-metrics", ("P39", "P40"), "takes every aggregation of metrics", _metrics),
    ("loose-layout", ("P4", "P6", "P10"), "reads what is legal and unusual", _loose_layout),
    ("rounded-bounds", ("P18",), "takes bounds that differ by rounding", _rounded_bounds),
    ("logs", ("P41",), "takes log records", _logs),
    ("evaluation", ("P19",), "answers a client of the role eval", _evaluation),
    ("unknown-features", ("P19", "P24"), "leaves alone what it does not know", _unknown_features),
    ("float16", ("P62", "P63"), "takes half precision, or does not name it", _float16),
    ("ping", ("P1",), "answers WebSocket pings", _pings),
    ("early-goodbye", ("P44", "P47"), "lets a client go that did nothing", _early_goodbye),
    ("open-goodbye", ("P44", "P46"), "lets a client go that is owed an answer", _open_goodbye),
    ("vanished-client", ("P47",), "goes on when a client vanishes", _vanished),
    ("bystander", ("P45",), "ends no session but the one that is faulted", _bystander),
)

SERVER_SCENARIOS: tuple[Scenario[ServerUnderTest], ...] = (
    *ASKED_FIRST,
    *(Scenario(name=n, clauses=c, title=t, play=p) for n, c, t, p in _TABLE),
    *RESUMES,
    *SEATS,
    *REFUSALS,
)
"""Everything a server is graded by, in order. The first session fixes the spaces of a new run."""
