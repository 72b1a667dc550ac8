"""The plans of the fault proxy: read from words, drawn from a seed."""

from __future__ import annotations

import itertools
import math

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.chaos.plan import KINDS, PLANS, Clause, Span, parse_plan, schedule


def first(plan: str, seed: int, count: int = 50):
    return list(itertools.islice(schedule(parse_plan(plan), seed), count))


def test_clause_says_kind_direction_gaps_length_and_amount():
    assert parse_plan("delay up every 10 for 1-3 of 0.2, cut every 0.5") == (
        Clause(
            kind="delay",
            direction="up",
            every_s=10.0,
            lasting_s=Span(low=1.0, high=3.0),
            amount=Span(low=0.2, high=0.2),
        ),
        Clause(
            kind="cut",
            direction="both",
            every_s=0.5,
            lasting_s=Span(low=0.0, high=0.0),
            amount=None,
        ),
    )


def test_a_fault_may_last_for_ever():
    (clause,) = parse_plan("black-hole every 1 for inf")
    assert clause.lasting_s.low == math.inf


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("", "expected KIND"),
        ("calm", "expected KIND"),
        ("cut", "expected KIND"),
        ("cut every 5 cut", "expected KIND"),
        ("melt every 5", "expected KIND"),
        ("cut every 0", "after «every»"),
        ("cut every -1", "after «every»"),
        ("cut every nan", "after «every»"),
        ("cut every 1-5", "one number after «every»"),
        ("cut every 5 of 3", "has no amount"),
        ("cut every 5 for x", "after «for»"),
        ("cut every 5 for 3-1", "after «for»"),
        ("throttle every 5 of 0", "after «of»"),
        ("cut every 5,, cut every 5", "expected KIND"),
    ],
)
def test_plan_that_makes_no_sense_is_refused_with_what_was_expected(plan, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_plan(plan)


@pytest.mark.parametrize("plan", PLANS)
def test_plans_with_a_name_can_be_read(plan):
    assert {clause.kind for clause in parse_plan(plan)} <= set(KINDS)


def test_same_seed_gives_the_same_faults_and_another_seed_others():
    assert first("hostile", 7) == first("hostile", 7)
    assert first("hostile", 7) != first("hostile", 8)


def test_faults_come_in_order_with_the_mean_gap_that_was_asked_for():
    faults = first("cut every 10, delay every 20 for 1-3 of 0.1-0.4", 3, 900)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    cuts = [fault.at_s for fault in faults if fault.kind == "cut"]
    gaps = [after - before for before, after in itertools.pairwise(cuts)]
    assert min(gaps) >= 5.0
    assert max(gaps) <= 15.0
    # Even between 5 and 15: 600 gaps have a standard error of 2.9 / √600 = 0.12.
    assert sum(gaps) / len(gaps) == pytest.approx(10.0, abs=0.6)
    delays = [fault for fault in faults if fault.kind == "delay"]
    assert all(1.0 <= fault.lasting_s <= 3.0 and 0.1 <= fault.amount <= 0.4 for fault in delays)


def test_a_clause_more_leaves_the_faults_of_the_others_as_they_are():
    alone = first("cut every 10", 5, 20)
    together = [f for f in first("cut every 10, corrupt every 3", 5, 200) if f.kind == "cut"]
    assert together[:20] == alone


def test_direction_is_drawn_for_faults_that_have_one():
    assert {fault.direction for fault in first("corrupt every 1", 1)} == {"up", "down"}
    assert {fault.direction for fault in first("corrupt up every 1", 1)} == {"up"}
    assert {fault.direction for fault in first("delay every 1", 1)} == {"both"}
