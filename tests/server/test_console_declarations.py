"""Declarations: every key the server writes is declared once, with a unit and a meaning."""

import pytest

from algorithms.metric_spec import MetricSpec
from algorithms.ppo.metrics import METRICS as PPO_METRICS
from royale_server.monitoring.declarations import (
    GROUPS,
    SERVER_METRICS,
    declared,
    deterministic_keys,
)
from royale_server.scheduler.ledger import Discard


def test_server_and_algorithm_declare_different_keys():
    joined = declared(PPO_METRICS)
    assert len(joined) == len(SERVER_METRICS) + len(PPO_METRICS)
    assert joined["run/step"].unit == "frame"


def test_a_key_declared_twice_is_refused_by_name():
    again = MetricSpec(key="run/step", unit="1", meaning="Mine.")
    with pytest.raises(ValueError, match="declared twice: run/step; rename"):
        declared([again])


def test_every_declaration_has_a_unit_and_a_sentence():
    for spec in SERVER_METRICS:
        assert spec.unit
        assert spec.meaning.endswith(".")


def test_every_reason_to_discard_has_its_key():
    keys = {spec.key for spec in SERVER_METRICS}
    assert {f"server/discarded_{reason.value}" for reason in Discard} <= keys
    assert "server/discarded_frames" in keys


def test_durations_rates_and_arrivals_are_not_deterministic_but_results_are():
    keys = deterministic_keys(declared(PPO_METRICS))
    assert {"run/step", "run/env_steps", "env/return_mean", "ppo/policy_loss"} <= keys
    assert not any("<" in key for key in keys)
    assert not any(key.startswith(("time/", "throughput/")) for key in keys)
    assert "run/attempt" not in keys
    assert "server/discarded_frames" not in keys


def test_numbers_of_episodes_are_absent_rather_than_nought():
    for spec in SERVER_METRICS:
        if spec.group in ("env", "policy", "selfplay"):
            assert spec.absent_when, spec.key


def test_every_group_is_one_of_the_servers_and_they_come_in_order():
    groups = [spec.group for spec in SERVER_METRICS]
    assert groups == sorted(groups, key=GROUPS.index)
    assert set(GROUPS) - set(groups) == {"ladder"}  # nothing emits any
    assert {spec.group for spec in PPO_METRICS} == {"ppo", "health"}


def test_every_declaration_names_its_rows_and_a_band_that_holds_something():
    for spec in (*SERVER_METRICS, *PPO_METRICS):
        assert spec.scope in ("all", "one environment id", "one seat")
        if spec.healthy is not None:
            low, high = spec.healthy
            assert low <= high, spec.key


def test_the_narrowest_family_declares_a_key():
    specs = declared(PPO_METRICS)
    assert specs.find("env/seat/1/return_p90").key == "env/seat/<n>/return_p90"
    assert specs.find("env/draw_rate").key == "env/<name>"
    assert specs.find("policy/cards_per_match").key == "policy/<name>"
    assert specs.find("ppo/kl_epoch3").key == "ppo/kl_epoch<n>"
    assert specs.find("ppo/unheard_of") is None
    written = ("ppo/kl_epoch3", "time/update", "ppo/unheard_of")
    keys = deterministic_keys(specs, written)
    assert keys - deterministic_keys(specs) == {"ppo/kl_epoch3"}
