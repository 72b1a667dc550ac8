"""Settings of algorithms and policies: checked at once, readable without torch."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from algorithms.dummy.config import DummyConfig
from algorithms.policies.config import (
    DUMMY_VARIANTS,
    MLP_VARIANTS,
    ArenaPolicyConfig,
    MLPPolicyConfig,
)
from algorithms.ppo.config import VARIANTS, PPOConfig
from royale_client.wire.errors import ConfigError


def test_every_problem_is_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        PPOConfig(gamma=1.5, num_epochs=0, max_grad_norm=-1.0, dual_clip=1.0)
    text = str(caught.value)
    for flag in ("--algo.gamma", "--algo.num-epochs", "--algo.max-grad-norm", "--algo.dual-clip"):
        assert f"ppo: {flag}: got" in text


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan"), float("inf")])
def test_senseless_gradient_bounds_are_refused(bound):
    # Case H06: a bound of 0 freezes the network, one of -1 reverses every gradient.
    with pytest.raises(ConfigError, match=r"--algo.max-grad-norm: got .*, expected a positive"):
        PPOConfig(max_grad_norm=bound)


@pytest.mark.parametrize("sizes", [(None, None), (64, 4)])
def test_exactly_one_way_of_cutting_minibatches_is_given(sizes):
    with pytest.raises(ConfigError, match=r"expected exactly one of them"):
        PPOConfig(minibatch_size=sizes[0], num_minibatches=sizes[1])


def test_partial_restore_needs_a_checkpoint_to_take_from():
    with pytest.raises(ConfigError, match=r"which needs --algo\.policy-checkpoint-path"):
        PPOConfig(restore="model")


def test_number_of_minibatches_follows_the_frames():
    config = PPOConfig(minibatch_size=None, num_minibatches=4)
    assert config.frames_per_minibatch(130) == 32  # the fourth takes the remainder, 34
    assert config.frames_per_minibatch(3) == 1


def test_schedules_run_over_the_budget_unless_told_otherwise():
    assert PPOConfig(total_timesteps=500).schedule_frames == 500
    assert PPOConfig(total_timesteps=500, horizon_frames=900).schedule_frames == 900


def test_bad_policy_and_dummy_settings_name_their_flags():
    with pytest.raises(ConfigError, match=r"mlp-policy: --policy.hidden-sizes: got \(64, 0\)"):
        MLPPolicyConfig(hidden_sizes=(64, 0))
    with pytest.raises(ConfigError, match=r"dummy: --algo.learn-s: got -1"):
        DummyConfig(learn_s=-1.0)


def test_named_variants_are_there():
    assert set(VARIANTS) == {"default", "classic", "mujoco", "arena"}
    assert set(MLP_VARIANTS) == {"default", "mujoco"}
    assert set(DUMMY_VARIANTS) == {"default"}


def test_settings_are_read_without_torch():
    modules = "algorithms.ppo.config, algorithms.dummy.config, algorithms.policies.config"
    code = f"import sys, {modules}, algorithms.errors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PACKAGE = Path(__file__).parents[2] / "algorithms"
READ_BY_THE_SERVER = {"policy_checkpoint_path", "restore"}


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        (PPOConfig, ("ppo/*.py", "base.py", "config.py")),
        (MLPPolicyConfig, ("policies/mlp.py", "policies/heads.py")),
        (ArenaPolicyConfig, ("policies/arena*.py",)),
    ],
)
def test_every_setting_is_read_by_more_than_its_checks(settings, places):
    # Checks stand in functions named problems or setting_problems.py: what is read only there is
    # accepted and ignored.
    files = [path for place in places for path in PACKAGE.glob(place)]
    code = "\n".join(
        path.read_text("utf-8").partition("def problems(self)")[0]
        for path in files
        if path.name != "setting_problems.py"
    )
    names = {field.name for field in dataclasses.fields(settings)} - READ_BY_THE_SERVER
    unread = {name for name in names if not re.search(rf"(config|self)\.{name}\b", code)}
    assert unread == set()
