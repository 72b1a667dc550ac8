"""Episode metrics a client declares, and the records it sends when episodes end.

The sender cleans a record, so that nothing an environment puts into its info can stop a run; the
receiver checks it, so that nothing a client sends can. Means and sums are computed elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from royale_client.wire.errors import ConfigError, ContractError, MessageDecodeError, brief
from royale_client.wire.fields import Header, clean_text, text
from royale_client.wire.limits import Limits

AGGREGATIONS = ("mean", "ratio", "share", "count", "categories")
"""How values of several episodes become one: mean; sum of numerators over sum of denominators;
the same over the episodes of all players, as a share with an interval; sum of vectors; how often
each number occurs."""

_PAIRS = ("ratio", "share")

MAX_CATEGORY = 65535
"""Largest number of a category: what is counted by it stays small."""

MetricValue: TypeAlias = float | list[float] | list[int]

_NUMBERS = (bool, int, float, np.integer, np.floating, np.bool_)
"""What a program may call a number."""


@dataclass(frozen=True, slots=True)
class EpisodeMetric:
    """A number that an environment reports once per episode."""

    name: str
    """Key in the episode record."""
    unit: str
    """Unit of the value, such as ``m`` or ``1``."""
    population: str
    """Which episodes report it, in words."""
    aggregation: str
    """One of ``mean`` (value: a number), ``ratio`` (value: numerator and denominator), ``share``
    (value: successes and trials), ``count`` (value: a vector of counts), ``categories`` (value: the
    numbers of the categories that occurred, each as often as it did)."""

    def __post_init__(self) -> None:
        """Refuse an aggregation nobody implements.

        Raises:
            ConfigError: Unknown aggregation.
        """
        if self.aggregation not in AGGREGATIONS:
            raise ConfigError(
                f"episode metric {brief(self.name)}: aggregation is {brief(self.aggregation)}, "
                f"expected one of {', '.join(AGGREGATIONS)}"
            )

    def to_data(self) -> list[str]:
        """Return name, unit, population and aggregation, as the ``hello`` carries them."""
        return [self.name, self.unit, self.population, self.aggregation]

    @classmethod
    def from_data(cls, data: object, limits: Limits) -> EpisodeMetric:
        """Read one entry of ``hello.episode_metrics``.

        Raises:
            MessageDecodeError: Not four short texts, or an unknown aggregation.
        """
        where = "hello.episode_metrics"
        if type(data) is not list or len(data) != 4:
            raise MessageDecodeError(
                "an episode metric is no list of four texts", where=where, got=brief(data)
            )
        fields: Header = dict(zip(("name", "unit", "population", "aggregation"), data, strict=True))
        try:
            return cls(*(text(fields, key, where, limits.max_name_length) for key in fields))
        except ConfigError as error:
            raise MessageDecodeError(str(error), where=where) from error


def clean_record(
    record: Mapping[str, Any], metrics: Iterable[EpisodeMetric]
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """Keep of an episode record what the server takes, in types every peer can read.

    Args:
        record: ``row``, ``return``, ``length``, ``time_s`` and ``metrics``; the last may be any
            mapping, such as the info an environment returned: only declared names are looked up.
        metrics: The metrics declared in the hello.

    Returns:
        The record to send, or None if its return, length or time is not a finite number; and, by
        name of what was dropped, a sentence about it.
    """
    problems = {}
    clean: dict[str, Any] = {"row": int(record["row"])}
    for key, convert in (("return", float), ("length", int), ("time_s", float)):
        value = _number(record[key])
        if value is None:
            return None, {key: f"episode record dropped: {key} is {brief(record[key])}"}
        clean[key] = convert(value)
    values: dict[str, MetricValue] = {}
    given: Mapping[Any, Any] = record.get("metrics") or {}
    for metric in metrics:
        if metric.name in given:
            kept = _metric_value(metric, given[metric.name])
            if kept is None:
                shown = clean_text(brief(given[metric.name]), 100)
                problems[metric.name] = (
                    f"episode metric {metric.name!r} dropped: {shown} is no {_form(metric)}"
                )
            else:
                values[metric.name] = kept
    clean["metrics"] = values
    return clean, problems


def check_records(
    records: tuple[dict[str, Any], ...],
    ended: np.ndarray[Any, np.dtype[np.bool_]],
    metrics: Mapping[str, EpisodeMetric],
    limits: Limits,
) -> None:
    """Refuse episode records that do not fit the step they came with.

    Args:
        records: The records of one step.
        ended: Which rows ended in that step. Shape ``(n,)``.
        metrics: The declared metrics by name.
        limits: For the length of a count vector or a list of categories.

    Raises:
        ContractError: A row that did not end or is named twice, a missing or non-finite number, a
            metric that was not declared or has another form.
    """
    rows = [record.get("row") for record in records]
    for row in rows:
        if type(row) is not int or not 0 <= row < len(ended) or not ended[row]:
            raise _bad_record("row", brief(row), "a row whose episode ended in this step")
    if len(set(rows)) != len(rows):
        raise _bad_record("row", brief(rows), "each row at most once")
    for record in records:
        _check_numbers(record)
        _check_metrics(record.get("metrics", {}), metrics, limits)


def _check_numbers(record: dict[str, Any]) -> None:
    for key, low in (("return", -math.inf), ("time_s", 0.0)):
        value = record.get(key)
        if not _is_finite(value) or value < low:
            raise _bad_record(key, brief(value), "a finite number")
    length = record.get("length")
    if type(length) is not int or length < 0:
        raise _bad_record("length", brief(length), "an integer >= 0")


def _check_metrics(values: object, metrics: Mapping[str, EpisodeMetric], limits: Limits) -> None:
    if type(values) is not dict:
        raise _bad_record("metrics", brief(values), "a map")
    for name, value in values.items():
        metric = metrics.get(name)
        if metric is None:
            raise _bad_record("metrics", brief(name), "a name declared in the hello")
        if not _fits(metric, value, limits.max_count_length):
            raise _bad_record(f"metrics.{name}", brief(value), _form(metric))


def _fits(metric: EpisodeMetric, value: object, max_count_length: int) -> bool:
    if metric.aggregation == "mean":
        return _is_finite(value)
    if type(value) is not list or not all(_is_finite(item) for item in value):
        return False
    if metric.aggregation in _PAIRS:
        return len(value) == 2 and (metric.aggregation == "ratio" or 0 <= value[0] <= value[1])
    if metric.aggregation == "categories" and not all(_is_category(item) for item in value):
        return False
    return len(value) <= max_count_length and all(item >= 0 for item in value)


def _metric_value(metric: EpisodeMetric, raw: object) -> MetricValue | None:
    if metric.aggregation == "mean":
        return _number(raw)
    if isinstance(raw, np.ndarray):
        raw = raw.tolist()
    if not isinstance(raw, list | tuple):
        return None
    numbers = [_number(item) for item in raw]
    values: list[Any] = [item for item in numbers if item is not None]
    whole = len(values) == len(numbers)
    if metric.aggregation in ("count", "categories"):  # one to three bytes each, in place of nine
        values = [int(item) if item.is_integer() else item for item in values]
    return values if whole and _fits(metric, values, Limits().max_count_length) else None


def _number(value: object) -> float | None:
    """Convert what a program may call a number, array of one element included."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    if not isinstance(value, _NUMBERS):
        return None
    try:
        converted = float(value)
    except (OverflowError, TypeError):
        return None
    return converted if math.isfinite(converted) else None


def _is_finite(value: object) -> TypeGuard[float]:
    """Tell whether a decoded value is a finite number; a boolean is none."""
    return (type(value) is float or type(value) is int) and math.isfinite(value)


def _is_category(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_CATEGORY


def _form(metric: EpisodeMetric) -> str:
    return {
        "mean": "finite number",
        "ratio": "pair of finite numbers (numerator, denominator)",
        "share": "pair of finite numbers (successes, trials), 0 <= successes <= trials",
        "count": "list of finite counts >= 0",
        "categories": f"list of integers from 0 to {MAX_CATEGORY}",
    }[metric.aggregation]


def _bad_record(field: str, got: str, expected: str) -> ContractError:
    return ContractError(
        "an episode record does not fit its step",
        where=f"step.episodes.{field}",
        got=got,
        expected=expected,
    )
