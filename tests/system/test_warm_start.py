"""Starting from the weights of another run, and what does not fit (case H18)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from checkpoints import load, save
from tests.run.runs import fingerprint
from tests.system import records
from tests.system.processes import Processes, Program, only_run

FRAMES, SOURCE_ITERATIONS = 64, 4
BUDGET = SOURCE_ITERATIONS * FRAMES
LONG = 500_000
INLINE = ("--inline", "CartPole-v1", "--inline-num-envs", 4, "--seed", 3, "--exp-name", "run")
SIZES = ("--algo.frames-per-iteration", FRAMES, "--algo.num-epochs", 1)
NORMALISED = ("--policy.normalize-observations", "--algo.scale-rewards")
FLAGS = (*INLINE, *SIZES, *NORMALISED)
OBSERVATION_COUNT, RETURN_COUNT = "observation_normalizer.0/count", "return_normalizer.count"


@pytest.fixture(scope="module")
def source(tmp_path_factory, zygote) -> Path:
    """The last checkpoint of a run that has used up its budget."""
    processes = Processes(tmp_path_factory.mktemp("source"), zygote)
    server = processes.try_server(*FLAGS, "--algo.total-timesteps", BUDGET, "--save-every", 2)
    assert server.wait() == 0
    processes.close()
    return only_run(processes.directory / "runs") / str(BUDGET)


def warm_start(
    processes: Processes, source: Path, *flags: object, base: tuple[object, ...] = FLAGS
) -> Program:
    """Run with weights of the source; see that the source stays as it is."""
    before = fingerprint(source.parent)
    path = ("--algo.policy-checkpoint-path", source)
    server = processes.try_server(*base, *path, *flags)
    server.wait()
    assert fingerprint(source.parent) == before
    return server


def model_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    return dict(load(checkpoint).tensors["model"])


def last_model(run: Path) -> dict[str, torch.Tensor]:
    return model_of(run / str(records.steps(run)[-1]))


@pytest.fixture(scope="module")
def old_source(source: Path, tmp_path_factory) -> Path:
    """A checkpoint at 500,000 of 500,000 frames: the source's, with counters of a longer life."""
    contents = load(source)
    state = contents.documents["state"]
    learner = {**state["learner"], "global_step": LONG, "frames_learnt": LONG}
    documents = {**contents.documents, "state": {**state, "learner": learner}}
    folder = tmp_path_factory.mktemp("old")
    return save(folder, replace(contents, step=LONG, documents=documents)).path


def test_model_counts_afresh_and_lasts_for_its_own_budget(processes: Processes, old_source):
    base = ("--inline", "CartPole-v1", "--inline-num-envs", 100, "--algo.num-epochs", 1)
    limits = ("--algo.total-timesteps", 10_000, "--algo.frames-per-iteration", 5_000)
    restore = ("--algo.restore", "model", *NORMALISED)
    server = warm_start(processes, old_source, *restore, *limits, base=base)
    assert server.wait() == 0
    rows = records.metrics(processes.run)
    assert [row["run/step"] for row in rows] == [5_000, 10_000]
    assert [row["run/policy_version"] for row in rows] == [1, 2]
    # 0.001 at its start, in a straight line to 0 over the budget.
    assert [row["ppo/learning_rate"] for row in rows] == [0.001, pytest.approx(0.0005)]
    # Normaliser statistics travel with the weights, with their counts.
    model = last_model(processes.run)
    assert set(model[OBSERVATION_COUNT].tolist()) == {BUDGET + 10_000}
    assert model[RETURN_COUNT].item() > model_of(old_source)[RETURN_COUNT].item()
    config = json.loads((processes.run / "config.json").read_text(encoding="utf-8"))
    assert config["algo"]["policy_checkpoint_path"] == str(old_source)


def test_except_critic_takes_the_actor_bit_for_bit_and_a_fresh_critic(processes: Processes, source):
    frozen = ("--algo.freeze-actor-iterations", 100, "--algo.total-timesteps", FRAMES)
    server = warm_start(processes, source, "--algo.restore", "except-critic", *frozen)
    assert server.wait() == 0
    (row,) = records.metrics(processes.run)
    assert row["run/step"] == FRAMES
    taken, own = model_of(source), last_model(processes.run)
    for name in taken:
        if name.startswith(("actor.", "head.")):
            assert torch.equal(own[name], taken[name]), name
    weights = [name for name in taken if name.startswith("critic.") and name.endswith("weight")]
    assert weights
    assert not any(torch.equal(own[name], taken[name]) for name in weights)


def test_all_continues_the_counters_where_the_source_stood(processes: Processes, source):
    beginning = source.parent / str(BUDGET // 2)
    server = warm_start(processes, beginning, "--algo.total-timesteps", BUDGET)
    assert server.wait() == 0
    rows = records.metrics(processes.run)
    assert [row["run/step"] for row in rows] == [BUDGET // 2 + FRAMES, BUDGET]
    assert [row["run/policy_version"] for row in rows] == [3, 4]
    expected = [row["ppo/learning_rate"] for row in records.metrics(source.parent)[2:]]
    assert [row["ppo/learning_rate"] for row in rows] == expected


def test_all_of_a_source_that_meets_the_budget_is_refused_before_anything_is_created(
    processes: Processes, source
):
    server = warm_start(processes, source, "--algo.total-timesteps", BUDGET)
    assert server.wait() == 2
    server.wait_for("already meets the budget")
    assert not (processes.directory / "runs").exists()


@pytest.mark.parametrize("restore", ["all", "model", "except-critic"])
def test_another_architecture_is_refused_naming_every_tensor_and_creating_nothing(
    processes: Processes, source, restore
):
    other = ("--policy.hidden-sizes", 64, "--policy.no-normalize-observations")
    flags = ("--algo.restore", restore, "--algo.total-timesteps", 2 * BUDGET)
    server = warm_start(processes, source, *flags, *other, base=(*INLINE, *SIZES, NORMALISED[1]))
    assert server.wait() == 2
    towers = ("actor",) if restore == "except-critic" else ("actor", "critic")
    # Of layers 4-64-64-n only 4-64-n is wanted: the last has moved, the second has no place.
    names = {name for name in model_of(source) if name.startswith(towers)}
    told = set(re.findall(r"(?:missing|unexpected|reshaped): (?!optimizer)(\S+)", server.output))
    told = {name.removesuffix(":") for name in told}
    statistics = {f"observation_normalizer.0/{part}" for part in ("mean", "var", "count")}
    same = {f"{tower}.0.{part}" for tower in towers for part in ("weight", "bias")}
    assert told == (names | statistics) - same
    assert not (processes.directory / "runs").exists()


def test_another_variant_on_resume_is_refused_and_leaves_the_run_as_it_was(
    processes: Processes, source
):
    run = source.parent
    runs = run.parents[2]
    before = fingerprint(runs)
    flags = (*FLAGS, "--resume", "--until-timesteps", 2 * BUDGET)
    server = processes.try_server(
        *flags, pair=("mlp-policy", "default", "ppo", "mujoco"), runs=runs
    )
    assert server.wait() == 2
    server.wait_for(r"algo\.minibatch_size: 256 in the run, 64 now")
    server.wait_for(r"algo\.learning_rate: 0\.001 in the run, 0\.0003 now")
    assert fingerprint(runs) == before


def test_another_architecture_on_resume_is_refused_naming_every_tensor_even_if_drift_is_allowed(
    processes: Processes, source
):
    runs = source.parents[3]
    before = fingerprint(runs)
    flags = (*FLAGS, "--resume", "--until-timesteps", 2 * BUDGET, "--policy.hidden-sizes", 64)
    server = processes.try_server(*flags, runs=runs)
    assert server.wait() == 2
    server.wait_for(r"policy\.hidden_sizes: .*64.*64.* in the run, .*64.* now")
    assert fingerprint(runs) == before
    server = processes.try_server(*flags, "--allow-identity-drift", runs=runs)
    assert server.wait() == 2
    server.wait_for(r"unexpected: actor\.\d\.weight")
    assert fingerprint(runs) == before
