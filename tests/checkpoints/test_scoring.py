"""What a checkpoint scores may become known after it was saved."""

from dataclasses import replace

import pytest

from checkpoints import best, enter_facts, list_checkpoints, list_steps, load, prune, save, verify
from checkpoints.scoring import POLICY_VERSION, evaluation_facts
from tests.checkpoints.contents import make_contents

TRAINING = {"score": 500.0, "score_of": "return_mean_100"}


def save_versions(run_dir, **versions):
    """Save a checkpoint for each ``s10=version``, with a mean return of training."""
    for name, version in versions.items():
        facts = {**TRAINING, POLICY_VERSION: version}
        save(run_dir, replace(make_contents(int(name[1:])), facts=facts))


def facts_by_step(run_dir):
    return {entry.step: dict(entry.manifest.facts) for entry in list_checkpoints(run_dir)[0]}


def test_what_is_entered_reaches_the_checkpoints_of_that_version_alone(tmp_path):
    save_versions(tmp_path, s10=1, s20=2, s30=2, s40=3)
    before = facts_by_step(tmp_path)
    facts = evaluation_facts(7.5, "episodes of Walk-v0")
    assert [path.name for path in enter_facts(tmp_path, 2, facts)] == ["20", "30"]
    after = facts_by_step(tmp_path)
    assert {step for step in after if after[step] != before[step]} == {20, 30}
    assert after[20] == {**facts, POLICY_VERSION: 2}


def test_a_checkpoint_is_whole_and_as_old_as_before(tmp_path):
    save_versions(tmp_path, s10=1)
    manifest = tmp_path / "10" / "manifest.json"
    saved_at, names = manifest.stat().st_mtime_ns, {p.name for p in manifest.parent.iterdir()}
    enter_facts(tmp_path, 1, evaluation_facts(7.5, "x"))
    verify(tmp_path / "10")
    assert load(tmp_path / "10").documents == make_contents(10).documents
    assert manifest.stat().st_mtime_ns == saved_at
    assert {path.name for path in manifest.parent.iterdir()} == names


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("where", ["os.fsync", "os.utime", "sync_directory"])
def test_a_process_killed_meanwhile_leaves_a_whole_checkpoint(tmp_path, monkeypatch, where):
    save_versions(tmp_path, s10=1)
    before, facts = facts_by_step(tmp_path)[10], evaluation_facts(7.5, "x")

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"checkpoints.scoring.{where}", die)
        with pytest.raises(Killed):
            enter_facts(tmp_path, 1, facts)
    verify(tmp_path / "10")
    assert facts_by_step(tmp_path)[10] in (before, {**before, **facts})
    enter_facts(tmp_path, 1, facts)
    verify(tmp_path / "10")
    assert facts_by_step(tmp_path)[10] == {**before, **facts}


def test_one_that_the_disk_refuses_keeps_what_it_had(tmp_path, monkeypatch, caplog):
    save_versions(tmp_path, s10=1)
    before = facts_by_step(tmp_path)

    def refuse(_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("checkpoints.scoring.os.fsync", refuse)
    assert enter_facts(tmp_path, 1, evaluation_facts(7.5, "x")) == []
    assert facts_by_step(tmp_path) == before
    assert "no space left" in caplog.text


def test_pruning_keeps_the_one_that_was_evaluated_best_after_its_save(tmp_path):
    save_versions(tmp_path, s10=1, s20=2, s30=3, s40=4, s50=5)
    for version, score in ((1, -4.0), (2, 9.0), (3, 8.0)):
        enter_facts(tmp_path, version, evaluation_facts(score, "x"))
    prune(tmp_path, keep_last=1)
    assert list_steps(tmp_path) == [20, 50]


def test_evaluations_in_something_else_than_the_newest_are_not_compared(tmp_path):
    save_versions(tmp_path, s10=1, s20=2, s30=3, s40=4)
    for version, score, subject in ((1, 900.0, "a"), (2, 3.0, "b"), (3, 2.0, "b")):
        enter_facts(tmp_path, version, evaluation_facts(score, subject))
    found = best(list_checkpoints(tmp_path)[0])
    assert found is not None
    assert found.step == 20
