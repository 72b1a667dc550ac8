"""``alarms.jsonl`` read back: what is open, what is over, and what a resume undid."""

from __future__ import annotations

from royale_server.alarms.history import open_spans, spans


def raised(alarm: str, iteration: int, severity: str = "warn") -> dict[str, object]:
    return {"kind": "raise", "alarm": alarm, "iteration": iteration, "severity": severity}


def cleared(alarm: str, iteration: int) -> dict[str, object]:
    return {"kind": "clear", "alarm": alarm, "iteration": iteration}


def resumed(iteration: int, *alarms: str) -> dict[str, object]:
    return {"kind": "resumed", "iteration": iteration, "open": list(alarms)}


def told(records: list[dict[str, object]]) -> list[tuple[str, int, int | None, str]]:
    return [(span.alarm, span.since, span.until, span.ending) for span in spans(records)]


def test_an_alarm_is_open_until_it_is_over():
    records = [raised("a", 3), raised("b", 4), cleared("a", 6), raised("a", 9)]
    assert told(records) == [
        ("a", 3, 6, "cleared"),
        ("b", 4, None, "open"),
        ("a", 9, None, "open"),
    ]
    assert [span.alarm for span in open_spans(records)] == ["b", "a"]


def test_a_resume_undoes_what_came_after_the_checkpoint():
    records = [raised("a", 3), cleared("a", 12), raised("b", 11), resumed(10, "a")]
    # The checkpoint of iteration 10 has «a» open; that it was over in 12 has not happened.
    assert told(records) == [("a", 3, None, "open"), ("b", 11, 10, "undone")]


def test_an_alarm_that_stopped_the_run_is_no_longer_open_once_it_is_resumed():
    records = [raised("a", 5, "halt"), resumed(5)]
    assert told(records) == [("a", 5, 5, "ended")]


def test_lines_of_another_kind_are_passed_over():
    assert spans([{}, {"kind": "new"}]) == []
