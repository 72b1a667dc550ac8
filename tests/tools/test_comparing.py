"""What ``royale verify-resume`` calls a difference, on rows made by hand."""

from __future__ import annotations

import math

from royale_server.tools.comparing import Difference, differences, history, never_written

KEYS = frozenset({"x/loss", "x/count"})


def row(iteration, attempt=1, **numbers):
    named = {key.replace("__", "/"): value for key, value in numbers.items()}
    return {"run/iteration": iteration, "run/attempt": attempt, **named}


def by_iteration(*rows):
    return {r["run/iteration"]: r for r in rows}


def compare(a, b, last=1):
    return differences(by_iteration(*a), by_iteration(*b), KEYS, last_iteration=last)


def test_equal_rows_have_no_difference_whatever_is_not_deterministic():
    a, b = row(1, x__loss=0.5, time__learn_s=1.0), row(1, 2, x__loss=0.5, time__learn_s=9.0)
    assert compare([a], [b]) == []


def test_one_bit_is_a_difference():
    close = math.nextafter(0.1, 1.0)
    found = compare([row(1, x__loss=0.1)], [row(1, x__loss=close)])
    assert found == [Difference("x/loss", 1, "0.1", "0.10000000000000002")]


def test_minus_zero_is_not_zero():
    assert compare([row(1, x__loss=0.0)], [row(1, x__loss=-0.0)]) != []


def test_an_absent_key_is_a_difference():
    found = compare([row(1, x__loss=1.0, x__count=2)], [row(1, x__loss=1.0)])
    assert found == [Difference("x/count", 1, "2", "absent")]


def test_infinity_is_not_nan_though_both_are_null_in_the_file():
    a = row(1, x__loss=None) | {"nonfinite": {"x/loss": "inf"}}
    b = row(1, x__loss=None) | {"nonfinite": {"x/loss": "nan"}}
    assert compare([a], [b]) == [Difference("x/loss", 1, "inf", "nan")]
    assert compare([b], [b]) == []


def test_a_key_that_no_row_has_was_never_compared():
    a, b = row(1, x__loss=1.0), row(2, x__loss=None)
    assert never_written([a, b], KEYS) == ["x/count"]
    assert never_written([a, b | {"x/count": None}], KEYS) == []


def test_a_missing_row_is_one_difference():
    a = [row(1, x__loss=1.0), row(2, x__loss=1.0)]
    assert compare(a, a[:1], last=2) == [Difference("(row)", 2, "written", "absent")]


def test_rows_beyond_the_last_iteration_do_not_count():
    a = [row(1, x__loss=1.0), row(2, x__loss=1.0)]
    assert compare(a, [a[0], row(2, x__loss=3.0)], last=1) == []


def test_the_last_attempt_wins_above_its_start():
    rows = [
        *(row(1, 1, x__loss=1.0), row(2, 1, x__loss=2.0), row(3, 1, x__loss=3.0)),
        *(row(2, 2, x__loss=20.0),),
    ]
    # Iteration 3 of the first attempt is of a history that was taken back.
    seen = history(rows)
    assert {i: r["x/loss"] for i, r in seen.items()} == {1: 1.0, 2: 20.0}
