"""The server's look at itself: what moves, what the disk does, who comes and goes."""

from __future__ import annotations

from royale_server.alarms.live import READINGS, DiskState, LiveMeter

QUIET = DiskState(busy_s=0.0, unwritten=0, dropped=0, tracker_lost=0, tracker_queued=0)


def stall(meter: LiveMeter, now: float) -> tuple[float, float]:
    sample = meter.sample(now, QUIET)
    return sample["sample/no_progress_s"], sample["sample/stall_bound_s"]


def test_a_collection_may_stand_still_twice_as_long_as_a_client_may_take():
    meter = LiveMeter(60.0, 0.0)
    meter.moved(10.0)
    assert stall(meter, 140.0) == (130.0, 120.0)


def test_a_learn_step_may_take_five_times_its_usual_pass_and_two_minutes_at_least():
    meter = LiveMeter(60.0, 0.0)
    meter.learning(0.0)
    for now in (50.0, 100.0, 150.0):
        meter.passed(now)
    assert stall(meter, 160.0) == (10.0, 250.0)
    quick = LiveMeter(60.0, 0.0)
    quick.learning(0.0)
    quick.passed(1.0)
    assert stall(quick, 2.0) == (1.0, 120.0)
    quick.learned(3.0)
    assert stall(quick, 3.0) == (0.0, 120.0)


def test_clients_lost_are_counted_over_ten_minutes():
    meter = LiveMeter(60.0, 0.0)
    for total, now in ((1, 0.0), (1, 50.0), (2, 100.0), (3, 650.0)):
        meter.lost(total, now)
    assert meter.sample(650.0, QUIET)["sample/clients_lost"] == 2.0


def test_every_number_of_a_sample_is_described():
    sample = LiveMeter(60.0, 0.0).sample(1.0, QUIET)
    assert set(sample) <= set(READINGS)
