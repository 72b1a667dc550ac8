"""Declarations: every key the server writes is declared once, with a unit and a meaning."""

import pytest

from algorithms.metric_spec import MetricSpec
from algorithms.ppo.metrics import METRICS as PPO_METRICS
from royale_server.monitoring.declarations import SERVER_METRICS, declared, deterministic_keys
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
    assert not any(key.startswith(("time/", "throughput/")) for key in keys)
    assert "run/attempt" not in keys
    assert "server/discarded_frames" not in keys


def test_numbers_of_episodes_are_absent_rather_than_nought():
    absent = {spec.key: spec.absent_when for spec in SERVER_METRICS if spec.absent_when}
    others = {key for key in absent if not key.startswith(("env/", "selfplay/"))}
    assert others == {"run/identity_drift", "run/dirty"}
    assert "env/return_mean" in absent
