"""Who is on time: medians of the others, the floor, leaving and returning."""

import math
import random
import statistics

import pytest

from royale_server.scheduler.quorum import TURNS_KEPT, Quorum


def quorum_of(*groups: str, patience: float = 3.0, floor_s: float = 0.02) -> Quorum[str]:
    quorum: Quorum[str] = Quorum(patience=patience, floor_s=floor_s)
    for group in groups:
        quorum.enter(group, group.split("/")[0])
    return quorum


def turns(quorum: Quorum[str], group: str, *durations_s: float) -> list[bool | None]:
    return [quorum.turn_ended(group, duration_s) for duration_s in durations_s]


def test_a_group_is_judged_by_the_median_turn_of_the_others_and_not_by_its_own() -> None:
    quorum = quorum_of("a", "b", "c", "d")
    turns(quorum, "a", 10.0)
    turns(quorum, "b", 0.1)
    turns(quorum, "c", 0.2)
    turns(quorum, "d", 0.4)
    assert quorum.patience_s("a") == pytest.approx(3 * 0.2)  # of 0.1, 0.2, 0.4
    assert quorum.patience_s("b") == pytest.approx(3 * 0.4)  # of 0.2, 0.4, 10
    assert quorum.patience_s("d") == pytest.approx(3 * 0.2)  # of 0.1, 0.2, 10


def test_of_two_middle_turns_the_shorter_counts() -> None:
    quorum = quorum_of("slow", "slower", "fast")
    turns(quorum, "slow", 2.0)
    turns(quorum, "slower", 3.0)
    turns(quorum, "fast", 0.1)
    assert quorum.patience_s("slow") == pytest.approx(3 * 0.1)  # of 0.1, 3
    assert quorum.patience_s("fast") == pytest.approx(3 * 2.0)  # of 2, 3


def test_a_client_s_second_group_is_no_other() -> None:
    quorum = quorum_of("slow/0", "slow/1", "fast/0", "fast/1")
    turns(quorum, "slow/1", 2.0)
    assert quorum.patience_s("slow/0") == 0.02  # no turn of the other client is known
    turns(quorum, "slow/0", 2.0)
    turns(quorum, "fast/0", 0.1)
    turns(quorum, "fast/1", 0.3)
    assert quorum.patience_s("slow/0") == pytest.approx(3 * 0.1)
    assert quorum.patience_s("fast/0") == pytest.approx(3 * 2.0)


def test_a_group_counts_with_the_median_of_its_last_nine_turns() -> None:
    quorum = quorum_of("a", "b")
    turns(quorum, "a", 0.1, 0.1, 0.1, 5.0, 5.0)
    assert quorum.patience_s("b") == pytest.approx(3 * 0.1)
    turns(quorum, "a", *[1.0] * TURNS_KEPT)
    assert TURNS_KEPT == 9
    assert quorum.patience_s("b") == pytest.approx(3 * 1.0)


def test_no_turn_below_the_floor_is_late() -> None:
    quorum = quorum_of("a", "b")
    turns(quorum, "a", 0.001)
    assert quorum.patience_s("b") == 0.02
    assert turns(quorum, "b", 0.02, 0.02, 0.02) == [None, None, None]


@pytest.mark.parametrize("groups", [("a/0",), ("a/0", "a/1")])
def test_with_no_other_session_nothing_is_late(groups: tuple[str, ...]) -> None:
    quorum = quorum_of(*groups)
    for group in groups:
        assert quorum.patience_s(group) == math.inf
        assert turns(quorum, group, 1.0, 60.0, 600.0) == [None, None, None]
    assert quorum.patience_s("a/0") == math.inf


def test_others_that_never_ended_a_turn_wait_no_longer_than_the_floor() -> None:
    quorum = quorum_of("hangs", "b")
    assert quorum.patience_s("hangs") == 0.02


def test_three_late_turns_running_and_a_group_leaves() -> None:
    quorum = quorum_of("a", "b")
    turns(quorum, "a", 0.1)
    assert turns(quorum, "b", 0.31, 0.31, 0.29) == [None, None, None]  # the third is on time
    assert turns(quorum, "b", 0.31, 0.31) == [None, None]
    assert "b" in quorum
    assert turns(quorum, "b", 0.31) == [False]
    assert "b" not in quorum


def test_three_turns_on_time_running_and_a_group_returns() -> None:
    quorum = quorum_of("a", "b")
    turns(quorum, "a", 0.1)
    turns(quorum, "b", 1.0, 1.0, 1.0)
    assert turns(quorum, "b", 0.1, 0.1, 1.0) == [None, None, None]  # the third is late
    assert turns(quorum, "b", 0.1, 0.1) == [None, None]
    assert "b" not in quorum
    assert turns(quorum, "b", 0.1) == [True]
    assert "b" in quorum


def test_a_group_that_left_still_counts_for_the_others() -> None:
    quorum = quorum_of("a", "b")
    turns(quorum, "a", 0.1)
    turns(quorum, "b", 1.0, 1.0, 1.0)
    assert quorum.patience_s("a") == pytest.approx(3 * 1.0)


def test_a_group_that_is_gone_counts_no_more() -> None:
    quorum = quorum_of("a", "b", "c")
    turns(quorum, "a", 0.1)
    turns(quorum, "b", 5.0)
    assert quorum.patience_s("c") == pytest.approx(3 * 0.1)
    quorum.leave("a")
    assert "a" not in quorum
    assert quorum.patience_s("c") == pytest.approx(3 * 5.0)
    quorum.leave("b")
    assert quorum.patience_s("c") == math.inf
    quorum.leave("never came")


def test_the_running_medians_are_those_of_a_sort_at_every_step() -> None:
    draw = random.Random(1)
    quorum = quorum_of(floor_s=0.0)
    kept: dict[str, list[float]] = {}
    for _ in range(500):
        session = draw.randrange(4)
        group = f"{session}/{draw.randrange(2)}"
        if draw.random() < 0.05 and group in kept:
            quorum.leave(group)
            del kept[group]
            continue
        if group not in kept:
            quorum.enter(group, session)
            kept[group] = []
        duration_s = draw.choice((0.1, 0.2, 0.3, 1.0))
        quorum.turn_ended(group, duration_s)
        kept[group] = [*kept[group], duration_s][-9:]
        for one in kept:
            others = [turns for group, turns in kept.items() if group[0] != one[0]]
            medians = [statistics.median_low(turns) for turns in others]
            expected = 3 * statistics.median_low(medians) if medians else math.inf
            assert quorum.patience_s(one) == pytest.approx(expected)
