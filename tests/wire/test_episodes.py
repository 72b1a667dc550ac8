"""Episode records: cleaned by the sender, checked by the receiver (case H22)."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest

from royale_client.wire.episodes import EpisodeMetric, check_records, clean_record
from royale_client.wire.errors import ConfigError, ContractError, MessageDecodeError
from royale_client.wire.limits import Limits

LIMITS = Limits()
MEAN = EpisodeMetric("n", "m", "all", "mean")
RATIO = EpisodeMetric("hit_rate", "1", "shots", "ratio")
SHARE = EpisodeMetric("first", "1", "all", "share")
COUNT = EpisodeMetric("cards", "1", "plays", "count")
CATEGORIES = EpisodeMetric("tiles", "tile", "plays", "categories")
METRICS = {metric.name: metric for metric in (MEAN, RATIO, SHARE, COUNT, CATEGORIES)}
ENDED = np.array([True, False, True])


def deep(levels: int) -> dict[str, Any]:
    box: dict[str, Any] = {}
    for _ in range(levels):
        box = {"x": box}
    return box


WILD_INFO: dict[Any, Any] = {
    1: "a",
    (1, 2): 3,
    None: 0,
    "s": {1},
    "n": np.float32(2),
    "b": np.bool_(True),
    "big": 2**64,
    "arr": np.zeros(3),
    "d": date(2026, 11, 30),
    "bad": "\ud800",
    "deep": deep(60),
}


def record(**changes: Any) -> dict[str, Any]:
    return {"row": 0, "return": 1.0, "length": 5, "time_s": 0.5, "metrics": {}, **changes}


def test_of_a_wild_info_only_declared_metrics_are_kept() -> None:
    clean, problems = clean_record(record(metrics=WILD_INFO), [MEAN])
    assert clean == record(metrics={"n": 2.0})
    assert problems == {}


def test_a_declared_metric_that_is_no_number_is_dropped_and_its_siblings_arrive() -> None:
    declared = [EpisodeMetric(name, "1", "all", "mean") for name in ("n", "b", "big", "arr", "d")]
    declared += [EpisodeMetric(name, "1", "all", "mean") for name in ("s", "bad", "deep")]
    clean, problems = clean_record(record(metrics=WILD_INFO), declared)
    assert clean is not None
    assert clean["metrics"] == {"n": 2.0, "b": 1.0, "big": 2.0**64}
    assert sorted(problems) == ["arr", "bad", "d", "deep", "s"]


@pytest.mark.parametrize(
    ("metric", "raw", "kept"),
    [
        (MEAN, np.float64(1.5), 1.5),
        (MEAN, np.array([4]), 4.0),
        (MEAN, True, 1.0),
        (MEAN, float("nan"), None),
        (MEAN, np.float32(np.inf), None),
        (MEAN, 10**400, None),
        (MEAN, "3", None),
        (MEAN, 1 + 2j, None),
        (MEAN, np.complex64(1), None),
        (RATIO, (3, 4), [3.0, 4.0]),
        (RATIO, np.array([1.0, 2.0]), [1.0, 2.0]),
        (RATIO, (1, 2, 3), None),
        (RATIO, 0.5, None),
        (SHARE, (3, 4), [3.0, 4.0]),
        (SHARE, (5, 4), None),
        (SHARE, (-1, 4), None),
        (COUNT, [1, 0, 2], [1.0, 0.0, 2.0]),
        (COUNT, [], []),
        (COUNT, [-1], None),
        (COUNT, [1, float("inf")], None),
        (COUNT, [0] * 1025, None),
        (COUNT, [[1], [2]], None),
        (COUNT, [[1], [2, 3]], None),
        (COUNT, [1.5, 2], [1.5, 2]),
        (CATEGORIES, np.array([7, 7, 0]), [7, 7, 0]),
        (CATEGORIES, [65535], [65535]),
        (CATEGORIES, [65536], None),
        (CATEGORIES, [-1], None),
        (CATEGORIES, [0.5], None),
        (CATEGORIES, [0] * 1025, None),
    ],
)
def test_a_metric_is_converted_or_dropped(metric: EpisodeMetric, raw: Any, kept: Any) -> None:
    clean, problems = clean_record(record(metrics={metric.name: raw}), [metric])
    assert clean is not None
    assert clean["metrics"].get(metric.name) == kept
    assert bool(problems) == (kept is None)


@pytest.mark.parametrize("changes", [{"return": float("nan")}, {"time_s": None}, {"length": "x"}])
def test_a_record_without_a_finite_return_length_or_time_is_dropped(
    changes: dict[str, Any],
) -> None:
    clean, problems = clean_record(record(**changes), [])
    assert clean is None
    assert list(problems) == list(changes)


def test_numpy_scalars_become_plain_numbers() -> None:
    clean, _ = clean_record(
        record(row=np.int64(2), length=np.int32(7), **{"return": np.float32(0.5)}), []
    )
    assert clean == record(row=2, length=7, **{"return": 0.5})
    assert clean is not None
    assert [type(clean[key]) for key in ("row", "length", "return")] == [int, int, float]


def test_what_the_sender_cleaned_the_receiver_takes() -> None:
    raw = record(
        metrics={"n": np.float32(1), "hit_rate": (1, 2), "cards": [1, 2], "tiles": (3.0, 3)}
    )
    clean, _ = clean_record(raw, METRICS.values())
    assert clean is not None
    check_records((clean, {**clean, "row": 2}), ENDED, METRICS, LIMITS)


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ((record(row=1),), "row"),
        ((record(row=3),), "row"),
        ((record(row=-1),), "row"),
        ((record(row=True),), "row"),
        ((record(row=[0]),), "row"),
        ((record(row=0), record(row=0)), "row"),
        ((record(**{"return": float("nan")}),), "return"),
        ((record(**{"return": "1"}),), "return"),
        ((record(**{"return": True}),), "return"),
        ((record(time_s=-1.0),), "time_s"),
        ((record(length=2.5),), "length"),
        ((record(length=-1),), "length"),
        ((record(metrics=[]),), "metrics"),
        ((record(metrics={"stranger": 1.0}),), "metrics"),
        ((record(metrics={"n": [1.0]}),), r"metrics.n"),
        ((record(metrics={"n": float("inf")}),), r"metrics.n"),
        ((record(metrics={"hit_rate": [1.0]}),), "hit_rate"),
        ((record(metrics={"hit_rate": [1.0, "x"]}),), "hit_rate"),
        ((record(metrics={"first": [-1.0, 2.0]}),), "first"),
        ((record(metrics={"first": [3.0, 2.0]}),), "first"),
        ((record(metrics={"first": [-2.0, -1.0]}),), "first"),
        ((record(metrics={"cards": [1.0, -1.0]}),), "cards"),
        ((record(metrics={"cards": [0.0] * 1025}),), "cards"),
        ((record(metrics={"tiles": [1.0]}),), "tiles"),
        ((record(metrics={"tiles": [65536]}),), "tiles"),
        ((record(metrics={"tiles": [True]}),), "tiles"),
        ((record(metrics={"tiles": [0] * 1025}),), "tiles"),
    ],
)
def test_a_record_that_does_not_fit_its_step_is_refused(
    records: tuple[dict[str, Any], ...], named: str
) -> None:
    with pytest.raises(ContractError) as caught:
        check_records(records, ENDED, METRICS, LIMITS)
    assert named in caught.value.where


def test_an_unknown_aggregation_is_refused_on_both_sides() -> None:
    with pytest.raises(ConfigError, match="median"):
        EpisodeMetric("n", "m", "all", "median")
    with pytest.raises(MessageDecodeError, match="median"):
        EpisodeMetric.from_data(["n", "m", "all", "median"], LIMITS)


@pytest.mark.parametrize("data", [None, ["n", "m", "all"], ["n", "m", "all", 3], ["n" * 129] * 4])
def test_a_metric_that_is_no_four_short_texts_is_refused(data: Any) -> None:
    with pytest.raises(MessageDecodeError):
        EpisodeMetric.from_data(data, LIMITS)
