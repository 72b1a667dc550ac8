"""The settings of self-play say what is wrong with them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.selfplay.config import SelfPlayConfig


def test_a_mixture_is_read_exactly_and_what_it_does_not_name_is_0() -> None:
    shares = SelfPlayConfig(mix="mirror=0.35, scripted=0.65").shares
    assert shares == {
        "mirror": Fraction(35, 100),
        "pool": Fraction(0),
        "scripted": Fraction(65, 100),
    }


@pytest.mark.parametrize(
    ("mix", "why"),
    [
        ("mirror=0.5", "the shares add up to 0.5"),
        ("mirror=0.7,pool=0.7", "the shares add up to 1.4"),
        ("mirror=half,pool=0.5", "the share of mirror is 'half', which is no number"),
        ("mirror=nan,pool=1", "the share of mirror is 'nan', which is no number"),
        ("mirror=1/0", "the share of mirror is '1/0', which is no number"),
        ("mirror=-0.5,pool=1.5", "the share of mirror is -0.5, outside 0 to 1"),
        ("mirror=0.5,mirror=0.5", "mirror is named twice"),
        ("ladder=1", "'ladder' is none of mirror, pool, scripted"),
        ("", "'' is none of mirror, pool, scripted"),
    ],
)
def test_a_wrong_mixture_is_refused_with_its_reason(mix: str, why: str) -> None:
    with pytest.raises(ConfigError, match="mix: got") as refused:
        SelfPlayConfig(mix=mix)
    assert str(refused.value).endswith(f"pool=0.35,scripted=0.15; {why}")


def test_all_other_problems_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        SelfPlayConfig(max_resident=1, snapshot_every=0, pool_size=1, scripted=("a", "a", ""))
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "max_resident",
        "snapshot_every",
        "pool_size",
        "scripted",
        "scripted",
    ]


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"mix": "mirror=0.8,scripted=0.2", "snapshot_every": 5}, "snapshot_every"),
        ({"mix": "mirror=1", "max_resident": 3}, "max_resident"),
        ({"mix": "mirror=1", "pool_size": 4}, "pool_size"),
        ({"mix": "mirror=1", "scripted": ("heuristic",)}, "scripted"),
    ],
)
def test_a_setting_that_the_mixture_makes_meaningless_is_refused(settings, flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag}: only counts with a share of"):
        SelfPlayConfig(**settings)
