"""Medians, ratios, bars, and when nothing may be claimed."""

import pytest

from royale_server.bench.plan import Claim
from royale_server.bench.results import as_document, as_text, failures, found
from royale_server.bench.rounds import Measured
from tests.bench.acts import Act, make_bench, ratio


def samples(a, b):
    return {"a": [{"speed": x} for x in a], "b": [{"speed": x} for x in b]}


def measured(a, b, *claims, left_out=()):
    bench = make_bench(Act("a", []), Act("b", []), claims=claims)
    return Measured(bench=bench, samples=samples(a, b), left_out=left_out)


def test_a_ratio_is_one_of_medians_and_its_rounds_are_paired():
    # medians 3 and 2; rounds 1/2, 3/1, 8/4
    (one,) = found(samples([1, 3, 8], [2, 1, 4]), [ratio()])
    assert (one.value, one.low, one.high) == (1.5, 0.5, 3.0)


def test_without_a_divisor_the_median_itself_is_shown():
    (one,) = found(samples([1, 3, 8], [1, 1, 1]), [Claim(of="a", figure="speed")])
    assert (one.value, one.low, one.high) == (3, 1, 8)


def test_two_figures_of_different_names_can_be_compared():
    rows = {"a": [{"ours": 6.0, "lean": 3.0}]}
    claim = Claim(of="a", over="a", figure="ours", over_figure="lean")
    assert found(rows, [claim])[0].value == 2.0


@pytest.mark.parametrize(
    ("settings", "holds"),
    [
        ({"bar": 1.5}, True),
        ({"bar": 1.6}, False),
        ({"bar": 1.5, "at_most": True}, True),
        ({"bar": 1.4, "at_most": True}, False),
        ({}, None),
    ],
)
def test_a_bar_is_reached_from_its_own_side(settings, holds):
    (one,) = found(samples([3, 3, 3], [2, 2, 2]), [ratio(**settings)])
    assert one.holds is holds


def test_two_rounds_claim_nothing():
    two = measured([3, 3], [2, 2], ratio(bar=9.0))
    assert found(two.samples, two.bench.claims)[0].holds is None
    assert failures([two]) == []
    assert "too few rounds" in as_text(two)
    assert "NOT REACHED" in as_text(measured([3, 3, 3], [2, 2, 2], ratio(bar=9.0)))


def test_a_claim_about_somebody_who_was_left_out_is_not_made():
    without_b = {"a": [{"speed": 1.0}]}
    assert found(without_b, [ratio(), Claim(of="b", figure="speed")]) == []


def test_the_table_shows_medians_claims_and_who_is_missing():
    text = as_text(measured([1, 3, 8], [2, 1, 4], ratio(bar=1.0, aim=2.0), left_out=("c: gone",)))
    lines = text.splitlines()
    assert lines[0] == "acts: a title"
    assert lines[2].split() == ["a", "speed", "3", "1", "8"]
    assert lines[5].split() == ["a", ":", "b", "1.5", "0.5", "…", "3", "≥", "1", "2", "reached"]
    assert lines[6] == "left out: c: gone"


def test_the_document_holds_every_round():
    document = as_document([measured([1, 3, 8], [2, 1, 4], ratio(bar=1.0))], rounds=3)
    (bench,) = document["benches"]
    assert document["rounds"] == 3
    assert bench["contenders"][0]["rounds"] == [{"speed": 1}, {"speed": 3}, {"speed": 8}]
    assert bench["contenders"][0]["medians"] == {"speed": 3}
    assert bench["claims"][0]["value"] == 1.5
    assert bench["claims"][0]["holds"] is True
