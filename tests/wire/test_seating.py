"""Who sits where, as maps of the wire and features of a hello."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from royale_client.wire.errors import ProtocolError
from royale_client.wire.limits import Limits
from royale_client.wire.seating import (
    Player,
    SeatAssignment,
    offered_bots,
    read_assignments,
    seating_features,
    write_assignments,
)

MAPS = (
    {"slots": [0, 2], "episode": 3, "player": "learner"},
    {"slots": [1], "episode": 3, "player": "snapshot", "name": "40"},
    {"slots": [2], "episode": 4, "player": "scripted", "name": "heuristic"},
)


def test_assignments_are_read_as_they_were_written() -> None:
    read = read_assignments(MAPS, num_slots=3)
    assert read == (
        SeatAssignment(slot=0, episode=3, player=Player.LEARNER),
        SeatAssignment(slot=2, episode=3, player=Player.LEARNER),
        SeatAssignment(slot=1, episode=3, player=Player.SNAPSHOT, name="40"),
        SeatAssignment(slot=2, episode=4, player=Player.SCRIPTED, name="heuristic"),
    )
    assert write_assignments(read) == MAPS


def test_episodes_of_a_slot_are_written_in_their_order() -> None:
    later = SeatAssignment(slot=0, episode=8, player=Player.LEARNER)
    sooner = SeatAssignment(slot=0, episode=7, player=Player.SCRIPTED, name="push")
    assert read_assignments(write_assignments([later, sooner]), num_slots=1) == (sooner, later)


def test_a_client_with_the_most_slots_there_may_be_is_told_in_one_header() -> None:
    players = [(Player.LEARNER, ""), (Player.SNAPSHOT, "100000"), (Player.SCRIPTED, "heuristic")]
    count = Limits().max_slots_per_session
    told = [
        SeatAssignment(
            slot=slot, episode=episode, player=players[slot % 3][0], name=players[slot % 3][1]
        )
        for episode in (10**6, 10**6 + 1)
        for slot in range(count)
    ]
    maps = write_assignments(told)
    assert len(maps) == 6
    assert len(msgpack.packb(maps)) < Limits().max_header_bytes / 4
    assert set(read_assignments(maps, count)) == set(told)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"slots": [0, 3]}, "assignments.slots"),
        ({"slots": [-1]}, "assignments.slots"),
        ({"slots": ["0"]}, "assignments.slots"),
        ({"slots": 0}, "assignments.slots"),
        ({"slots": [0, 1, 2, 0]}, "assignments.slots"),
        ({"episode": None}, "assignments.episode"),
        ({"player": "human"}, "assignments.player"),
        ({"player": 1}, "assignments.player"),
        ({"name": 7}, "assignments.name"),
    ],
)
def test_what_is_no_assignment_is_refused_with_its_place(
    changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(ProtocolError, match=where):
        read_assignments([MAPS[0] | changes], num_slots=3)


def test_bots_are_offered_by_features_in_their_order() -> None:
    features = ("snapshot", *seating_features(["push", "heuristic"]))
    assert features == ("snapshot", "assignments", "scripted:push", "scripted:heuristic")
    assert offered_bots(features) == ("push", "heuristic")
    assert offered_bots(("snapshot", "assignments")) == ()
