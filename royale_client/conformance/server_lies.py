"""What a client must not believe: one message of a broken server each, after which it must leave.

A client that breaks a clause is told so by a fault; a server that does is left, and what it sent is
not carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from royale_client.conformance.client_stage import ClientUnderTest
from royale_client.conformance.client_talk import ClientTalk
from royale_client.conformance.raw_messages import (
    assemble,
    packed,
    with_arrays,
    with_entry,
    with_header,
    with_table,
    with_tail,
)
from royale_client.conformance.scenario import Scenario
from royale_client.wire.dtypes import Array
from royale_client.wire.messages import Action, Probe, Restore, Snapshot, encode_message
from royale_client.wire.probes import PROBE
from royale_client.wire.snapshots import RESTART, SNAPSHOT

Lie = Callable[[ClientTalk], bytes | str]


def _when_greeted(client: ClientUnderTest, clauses: tuple[str, ...], what: str, lie: Lie) -> None:
    with client.talk() as talk:
        talk.send_raw(lie(talk))
        talk.expect_departure(clauses, f"{what} in place of a welcome")


def _when_ready(client: ClientUnderTest, clauses: tuple[str, ...], what: str, lie: Lie) -> None:
    with client.talk() as talk:
        talk.welcome()
        talk.turns(2)
        talk.send_raw(lie(talk))
        talk.expect_departure(clauses, f"{what} in place of an answer")


def _welcome(**changes: object) -> Lie:
    return lambda talk: with_header(talk.a_welcome(), **changes)


def _seeds(change: Callable[[Array], Array]) -> Lie:
    return lambda talk: with_arrays(talk.a_welcome(), seeds=change(talk.a_welcome().seeds))


def _needless_restore(talk: ClientTalk) -> bytes:
    talk.lacks(RESTART)
    return encode_message(talk.a_welcome(restores=True))


def _needless_probe(talk: ClientTalk) -> bytes:
    talk.lacks(PROBE)
    return encode_message(Probe(number=1, question="layout"))


def _needless_snapshot(talk: ClientTalk) -> bytes:
    talk.lacks(SNAPSHOT)
    return encode_message(Snapshot(number=1))


def _early_action(talk: ClientTalk) -> bytes:
    action = Action(group=0, request=1, policy_version=0, actions=(np.zeros(1, np.int64),))
    return encode_message(action)


def _action(change: Callable[[Action], bytes]) -> Lie:
    """Change the answer to the open request of the first group."""
    return lambda talk: change(talk.an_action(0))


def _actions(change: Callable[[Array], Array]) -> Lie:
    """Change the actions of an answer, every leaf of them."""

    def lie(talk: ClientTalk) -> bytes:
        action = talk.an_action(0)
        changed = {f"x{leaf}": change(array) for leaf, array in enumerate(action.actions)}
        return with_arrays(action, **changed)

    return lie


def _other_number(action: Action, by: int) -> bytes:
    return with_header(action, request=action.request + by)


def _other_dtype(array: Array) -> Array:
    return array.astype(np.int32 if array.dtype != np.int32 else np.int16)


def _table(*entry: object) -> Lie:
    return _action(lambda action: with_table(action, "x0", list(entry)))


_Row = tuple[str, tuple[str, ...], str, Lie]

# fmt: off
_GREETED: tuple[_Row, ...] = (
    ("text-welcome", ("P3",), "a text message", lambda _talk: "welcome"),
    ("garbage-welcome", ("P4",), "random bytes", lambda _talk: bytes(range(3, 90))),
    ("action-before-welcome", ("P42",), "an action", _early_action),
    ("hello-from-server", ("P42",), "a hello", lambda talk: encode_message(talk.hello)),
    ("welcome-key-missing", ("P6", "P24"), "a welcome without last_requests",
     _welcome(last_requests=...)),
    ("other-protocol", ("P24",), "a welcome to protocol 2", _welcome(protocol=2)),
    ("other-horizon", ("P24",), "a welcome with 4 actions a row", _welcome(horizon=4)),
    ("other-groups", ("P24",), "a welcome of three groups", _welcome(last_requests=[0, 0, 0])),
    ("seed-missing", ("P24",), "a welcome with a seed too few", _seeds(lambda seeds: seeds[:-1])),
    ("signed-seeds", ("P24",), "a welcome whose seeds are i8",
     _seeds(lambda seeds: seeds.astype(np.int64))),
    ("needless-probe", ("P76",), "a probe without the feature", _needless_probe),
    ("needless-continues", ("P73",), "a welcome that goes on with a session nobody named",
     _welcome(continues=True)),
    ("restore-promised", ("P57",), "a welcome that promises a restore", _needless_restore),
)
_READY: tuple[_Row, ...] = (
    ("text-message", ("P3",), "a text message", lambda _talk: "action"),
    ("short-message", ("P4",), "three bytes", lambda _talk: b"\5\0\0"),
    ("header-beyond-message", ("P4",), "a header longer than the message",
     lambda _talk: assemble(packed({"t": "busy"}), length=900)),
    ("repeated-key", ("P5",), "a key that occurs twice",
     _action(lambda action: with_entry(action, b"\xa5group", b"\0"))),
    ("extension-value", ("P5",), "a value of an extension type",
     _action(lambda action: with_entry(action, b"\xa1z", b"\xd4\5\0"))),
    ("unknown-type", ("P6", "P42"), "a message of the type sing",
     lambda _talk: assemble(packed({"t": "sing"}))),
    ("object-dtype", ("P8",), "an array of objects", _table("|O", [1], 0)),
    ("huge-array", ("P10", "P11"), "an array of 8 GiB in a small message",
     _table("i8", [2**30], 0)),
    ("bytes-left-over", ("P10",), "bytes after the last array",
     _action(lambda action: with_tail(action, bytes(8)))),
    ("unknown-array", ("P12",), "an array that no clause names",
     _action(partial(with_arrays, x9=np.zeros(1)))),
    ("number-too-high", ("P34",), "an answer to a request that was not made",
     _action(partial(_other_number, by=1))),
    ("number-again", ("P34",), "an answer to a request that was answered",
     _action(partial(_other_number, by=-1))),
    ("no-such-group", ("P34",), "an answer to a group that is not there",
     _action(partial(with_header, group=2))),
    ("row-missing", ("P34",), "an answer with a row too few", _actions(lambda x: x[:-1])),
    ("row-too-many", ("P34",), "an answer with a row too many",
     _actions(lambda x: np.concatenate([x, x[:1]]))),
    ("leaf-missing", ("P34",), "an answer without its first leaf",
     _action(partial(with_arrays, x0=None))),
    ("other-dtype", ("P16", "P34"), "actions of another type", _actions(_other_dtype)),
    ("other-shape", ("P16", "P34"), "actions with a dim more", _actions(lambda x: x[..., None])),
    ("second-welcome", ("P42",), "a second welcome", lambda talk: encode_message(talk.a_welcome())),
    ("step-from-server", ("P42",), "a step",
     lambda talk: encode_message(talk.the_step(0))),
    ("unpromised-restore", ("P42", "P57"), "a restore", lambda _talk: encode_message(Restore())),
    ("needless-snapshot", ("P52",), "a snapshot without the feature", _needless_snapshot),
)
# fmt: on


def _scenario(
    tell: Callable[[ClientUnderTest, tuple[str, ...], str, Lie], None], row: _Row
) -> Scenario[ClientUnderTest]:
    name, clauses, what, lie = row
    return Scenario(
        name=name,
        clauses=clauses,
        title=f"leaves a server that sends {what}",
        play=lambda client: tell(client, clauses, what, lie),
    )


LIES: tuple[Scenario[ClientUnderTest], ...] = (
    *(_scenario(_when_greeted, row) for row in _GREETED),
    *(_scenario(_when_ready, row) for row in _READY),
)
"""All of them."""
