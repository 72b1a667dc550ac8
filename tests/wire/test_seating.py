"""Who sits where, as maps of the wire and features of a hello."""

from __future__ import annotations

from typing import Any

import pytest

from royale_client.wire.errors import ProtocolError
from royale_client.wire.seating import (
    Player,
    SeatAssignment,
    offered_bots,
    read_assignments,
    seating_features,
)

MAPS = [
    {"slot": 0, "episode": 3, "player": "learner"},
    {"slot": 1, "episode": 3, "player": "snapshot", "name": "40"},
    {"slot": 2, "episode": 9, "player": "scripted", "name": "heuristic"},
]


def test_assignments_are_read_as_they_were_written() -> None:
    read = read_assignments(MAPS, num_slots=3)
    assert read == (
        SeatAssignment(slot=0, episode=3, player=Player.LEARNER),
        SeatAssignment(slot=1, episode=3, player=Player.SNAPSHOT, name="40"),
        SeatAssignment(slot=2, episode=9, player=Player.SCRIPTED, name="heuristic"),
    )
    assert [assignment.to_data() for assignment in read] == MAPS


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"slot": 3}, "assignments.slot"),
        ({"slot": -1}, "assignments.slot"),
        ({"slot": "0"}, "assignments.slot"),
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
