"""When a client tries again (case H32), as pure functions."""

import math
import random
from itertools import pairwise

import pytest

from royale_client.reconnect import AFTER_LOSS, FIRST_CONTACT, Backoff, Patience, Retries


def test_limits_double_up_to_the_cap():
    limits = [AFTER_LOSS.limit_s(attempt) for attempt in range(1, 9)]

    assert limits == [1, 2, 4, 5, 5, 5, 5, 5]


def test_delay_is_drawn_from_zero_to_the_limit():
    # uniform() gives a share of the limit: 0, a quarter, almost all.
    assert AFTER_LOSS.delay_s(3, lambda: 0.0) == 0.0
    assert AFTER_LOSS.delay_s(3, lambda: 0.25) == 1.0
    assert AFTER_LOSS.delay_s(9, lambda: 0.5) == 2.5


def test_attempts_of_days_do_not_overflow():
    assert AFTER_LOSS.limit_s(100_000) == 5.0


def test_attempts_are_counted_from_one():
    with pytest.raises(ValueError, match="from 1, got 0"):
        AFTER_LOSS.limit_s(0)


def test_a_server_that_has_not_started_is_looked_for_more_often():
    assert all(FIRST_CONTACT.limit_s(n) <= 2.0 for n in range(1, 100))


def test_storm_of_64_clients_is_spread_and_over_within_a_minute():
    # The server is away for 10 s; afterwards every attempt succeeds.
    generator = random.Random(1)
    attempts, joined = [], []
    for _ in range(64):
        now_s = 0.0
        for attempt in range(1, 100):
            now_s += AFTER_LOSS.delay_s(attempt, generator.random)
            attempts.append((now_s, AFTER_LOSS.limit_s(attempt)))
            if now_s >= 10.0:
                joined.append(now_s)
                break

    assert len(joined) == 64
    assert max(joined) < 60.0
    late = sorted(time_s for time_s, limit_s in attempts if limit_s >= 4.0)
    busiest = max(sum(start <= t < start + 0.25 for t in late) for start in late)
    assert busiest < 0.25 * 64


def retries(now_s=0.0, **patience):
    return Retries(Patience(**patience), lambda: 1.0, now_s)


def test_first_contact_is_given_up_after_its_time():
    tries = retries(connect_timeout_s=1.0)

    # Limits 0.25 and 0.5; then only 0.25 s are left; then none.
    assert tries.next_pause_s(0.0) == 0.25
    assert tries.next_pause_s(0.25) == 0.5
    assert tries.next_pause_s(0.75) == 0.25
    assert tries.next_pause_s(1.0) is None


def test_lost_connection_has_a_budget_of_its_own():
    tries = retries(connect_timeout_s=1.0, budget_s=2.5)
    tries.connected(100.0)

    assert tries.next_pause_s(200.0) == 1.0
    assert tries.next_pause_s(201.0) == 1.5  # 2 s drawn, but the budget ends at 202.5
    assert tries.next_pause_s(202.5) is None


def test_connection_that_does_not_last_neither_resets_the_count_nor_the_budget():
    tries = retries(budget_s=10.0)
    tries.connected(0.0)
    pauses = [tries.next_pause_s(5.0)]
    for now_s in (7.0, 9.0):
        tries.connected(now_s - 0.1)
        pauses.append(tries.next_pause_s(now_s))

    assert pauses == [1.0, 2.0, 4.0]
    tries.connected(14.9)
    assert tries.next_pause_s(15.0) is None


def test_stable_connection_starts_the_count_afresh():
    tries = retries(budget_s=10.0)
    tries.connected(0.0)
    tries.next_pause_s(5.0)
    tries.next_pause_s(6.0)
    tries.connected(8.0)

    assert tries.next_pause_s(8.0 + AFTER_LOSS.stable_s) == 1.0


def test_budget_of_zero_does_not_try_again():
    tries = retries(budget_s=0.0)
    tries.connected(0.0)

    assert tries.next_pause_s(5.0) is None


def test_patience_for_ever_never_gives_up():
    tries = retries(connect_timeout_s=1.0, budget_s=1.0, for_ever=True)
    for now_s in range(0, 10_000, 100):
        assert tries.next_pause_s(float(now_s)) is not None
    tries.connected(10_000.0)
    for now_s in range(20_000, 30_000, 100):
        assert tries.next_pause_s(float(now_s)) is not None


def test_waiting_for_the_next_run_has_no_end_and_begins_at_once():
    tries = retries(connect_timeout_s=1.0)
    tries.connected(0.0)
    tries.wait_for_next_run()

    pauses = [tries.next_pause_s(now_s) for now_s in (10.0, 1e6, math.nextafter(1e9, 0))]
    assert pauses == [1.0, 2.0, 4.0]
    assert all(later >= earlier for earlier, later in pairwise(pauses))


def test_backoff_takes_other_numbers():
    assert [Backoff(base_s=3, factor=10, cap_s=50).limit_s(n) for n in (1, 2, 3)] == [3, 30, 50]


def test_pauses_after_a_loss_are_those_asked_for():
    patience = Patience(backoff=Backoff(base_s=0.5, cap_s=1.0))
    retries = Retries(patience, lambda: 1.0, now_s=0.0)
    retries.connected(0.0)
    assert [retries.next_pause_s(10.0) for _ in range(3)] == [0.5, 1.0, 1.0]
