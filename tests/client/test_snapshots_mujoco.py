"""MuJoCo after a restore: warm start, contacts, positions that lag a step, all as before."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import pytest

from royale_client.driver import SnapshotError
from tests.client.snapshot_world import assert_goes_on_the_same, begin, gym_driver, play

ENV_IDS = sorted(
    spec.id
    for spec in gymnasium.registry.values()
    if str(spec.entry_point).startswith("gymnasium.envs.mujoco") and spec.version == 5
)
EVERYTHING = {
    "wrapper": ("gymnasium.wrappers:RecordEpisodeStatistics",),
    "frame_skip": 2,
}


def test_all_environments_of_the_family_are_here():
    assert len(ENV_IDS) == 11


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_mujoco_goes_on_the_same(env_id):
    assert_goes_on_the_same(lambda: gym_driver(env_id))


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Reacher-v5"])
def test_mujoco_goes_on_the_same_with_frame_skip_and_statistics(env_id):
    assert_goes_on_the_same(lambda: gym_driver(env_id, **EVERYTHING))


def test_the_physics_of_another_model_are_refused(tmp_path):
    driver = gym_driver("Swimmer-v5")
    begin(driver)
    state = driver.snapshot()
    # Six bodies more than the model has, none of them seen in the observation.
    source = driver._env.envs[0].unwrapped.fullpath
    text = Path(source).read_text("utf-8")
    other_model = tmp_path / "swimmer.xml"
    other_model.write_text(
        text.replace("<worldbody>", "<worldbody>" + '<body pos="9 9 9"/>' * 6), "utf-8"
    )
    other = gym_driver("Swimmer-v5", env_kwargs=json.dumps({"xml_file": str(other_model)}))
    with pytest.raises(SnapshotError, match="another MuJoCo model"):
        other.restore(state)
    play(other, begin(other), 1, 3)
