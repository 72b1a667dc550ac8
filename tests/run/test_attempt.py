"""A start of the server on a run: compared with what the run was, before anything is touched."""

import errno
import json
import os
import sys
import threading
from dataclasses import replace

import pytest

from algorithms.base import Learner
from algorithms.dummy.config import DummyConfig
from algorithms.dummy.learner import DummyLearner
from algorithms.policies.config import MLPPolicyConfig
from algorithms.ppo.config import PPOConfig
from checkpoints import list_steps, read_manifest
from royale_client.wire.errors import ConfigError
from royale_server import saved_run
from royale_server.config import Pair, ServerConfig
from royale_server.run import finished, identity_check
from royale_server.run.attempt import open_attempt
from royale_server.run.finished import RunFinishedError
from royale_server.run.identity import DIRTY_MARK, DRIFT_MARK, IdentityDriftError
from royale_server.run.identity_record import MAX_ENVIRONMENTS, read_identity
from royale_server.run.lock import RunLock
from royale_server.run.process import this_process
from royale_server.run.records import read_records
from royale_server.run.source import UNKNOWN, Source
from tests.run.runs import fingerprint, make_contents

PAIR = Pair(policy="mlp-policy", policy_variant="default", algo="ppo", algo_variant="default")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARTPOLE = ("CartPole-v1", "a" * 16)


@pytest.fixture
def base(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def code(monkeypatch):
    """What git says of the code; tests change it."""
    said = {"commit": COMMIT, "changes": None, "changed_files": (), "diff": b"", "problem": None}
    monkeypatch.setattr(
        identity_check, "read_sources", lambda roots: [Source(name="royale", **said)]
    )
    return said


def config(base, *, algo=None, **changes):
    return ServerConfig(
        pair=PAIR,
        policy=MLPPolicyConfig(),
        algo=algo or PPOConfig(total_timesteps=1000),
        checkpoint_base_dir=base,
        exp_name="exp",
        device="cpu",
        **changes,
    )


def contents(step, returns=(), learnt=None):
    learner = {"recent_returns": list(returns), "global_step": step if learnt is None else learnt}
    return replace(make_contents(step), documents={"state": {"learner": learner}})


def start(base, *, step=None, returns=(), learnt=None, environments=(), begins=True, **changes):
    """Start the server on the run, let it write a row and perhaps a checkpoint, and end it.

    Returns:
        The attempt, after its end.
    """
    with open_attempt(config(base, **changes), pytest.fail) as attempt:
        attempt.announce()
        for environment in environments:
            attempt.note_environment(*environment)
        if begins:
            attempt.begin()
            attempt.writer.metrics({"run/step": step or 0, **attempt.row_marks}, step or 0)
        if step is not None:
            attempt.writer.checkpoint(contents(step, returns, learnt))
            assert attempt.writer.flush(30)
    return attempt


def refuse(base, error, match, **changes):
    """Expect a refusal to resume that leaves the disk byte for byte as it was."""
    before = fingerprint(base)
    with pytest.raises(error, match=match) as caught:
        start(base, resume=True, **changes)
    assert fingerprint(base) == before
    return caught.value


def events(attempt, kind):
    return [e for e in read_records(attempt.path / "events.jsonl")[0] if e["kind"] == kind]


def remembered(attempt):
    """Environments that are written down."""
    return list(read_identity(attempt.path / "identity.json").environments)


def last_row(attempt):
    return read_records(attempt.path / "metrics.jsonl")[0][-1]


# --- a disk that refuses --------------------------------------------------------------------------


def raise_full(*_arguments, **_keywords):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_of_runs_that_is_none_is_refused_with_a_sentence(base, code):
    base.write_text("mine")
    with pytest.raises(ConfigError, match=r"runs.*: .*choose another --checkpoint-base-dir"):
        start(base)
    assert base.read_text() == "mine"


@pytest.mark.parametrize("refused", ["os.mkdir", "os.open", "os.fsync"])
@pytest.mark.parametrize("mode", [{}, {"overwrite": True}], ids=["fresh", "overwrite"])
def test_a_start_on_a_full_disk_is_undone_and_says_so(base, code, monkeypatch, mode, refused):
    (base / "ppo" / "mlp-policy").mkdir(parents=True)
    if mode:
        start(base, step=100)
    before = fingerprint(base)
    with monkeypatch.context() as patch:
        patch.setattr(refused, raise_full)
        with pytest.raises(ConfigError, match=r"No space left on device; .* check free space"):
            start(base, **mode)
    assert fingerprint(base) == before
    start(base, step=200, **mode)


def test_a_resume_on_a_full_disk_changes_no_checkpoint_and_the_next_one_works(
    base, code, monkeypatch
):
    first = start(base, step=100)
    before = fingerprint(first.path / "100")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raise_full)
        with pytest.raises(ConfigError, match="No space left on device"):
            start(base, resume=True)
    assert fingerprint(first.path / "100") == before
    assert start(base, resume=True, step=200).resumed.step == 100


# --- identity -------------------------------------------------------------------------------------


def test_the_first_attempt_writes_down_what_the_run_is(base, code):
    attempt = start(base, step=10)
    document = json.loads((attempt.path / "identity.json").read_text())
    assert document["fields"]["algo.gamma"] == 0.99
    assert document["fields"]["device_kind"] == "cpu"
    assert document["fields"]["source.royale.commit"] == COMMIT
    assert {"versions.python", "versions.torch", "versions.royale-rl"} <= set(document["fields"])
    assert document["environments"] == document["changes"] == []
    facts = read_manifest(attempt.path / "10").facts
    assert len(facts) == 1  # the writer's own; the trainer adds those of the attempt
    assert set(attempt.facts) == {"config_digest", "identity_digest"}
    assert not (attempt.path / "source.diff").exists()


def test_an_unchanged_run_resumes_without_a_word(base, code, caplog):
    start(base, step=10)
    attempt = start(base, resume=True)
    assert attempt.row_marks == {}
    assert caplog.messages == []
    assert [e["kind"] for e in read_records(attempt.path / "events.jsonl")[0]] == []


def test_a_run_that_has_changed_is_refused_with_every_difference_and_left_alone(base, code):
    start(base, step=10)
    code["commit"] = "f" * 40
    algo = PPOConfig(total_timesteps=1000, gamma=0.95)
    error = refuse(base, IdentityDriftError, "2 things are not as in the run exp", algo=algo)
    assert "algo.gamma: 0.99 in the run, 0.95 now" in str(error)
    assert "source.royale.commit: 0123456789ab in the run, ffffffffffff now" in str(error)
    assert isinstance(error, ConfigError)


def test_an_allowed_change_marks_every_later_row_of_every_later_attempt(base, code, caplog):
    start(base, step=10)
    algo = PPOConfig(total_timesteps=1000, gamma=0.95)
    attempt = start(base, resume=True, step=20, algo=algo, allow_identity_drift=True)
    assert last_row(attempt)[DRIFT_MARK] == 1.0
    assert "allowed: algo.gamma: 0.99 in the run, 0.95 now" in caplog.text
    (event,) = events(attempt, "identity_drift")
    assert event["differences"] == [{"field": "algo.gamma", "old": "0.99", "new": "0.95"}]
    assert event["attempt"] == 2

    # What was allowed is what the run is now; it stays marked.
    caplog.clear()
    third = start(base, resume=True, algo=algo)
    assert last_row(third)[DRIFT_MARK] == 1.0
    assert "the run is no longer what it began as" in caplog.text
    assert len(events(third, "identity_drift")) == 1
    refuse(base, IdentityDriftError, "algo.gamma: 0.95 in the run, 0.99 now")


def test_what_was_allowed_counts_only_once_the_attempt_has_begun(base, code):
    start(base, step=10)
    before = (base / "ppo" / "mlp-policy" / "exp" / "identity.json").read_bytes()
    algo = PPOConfig(total_timesteps=1000, gamma=0.95)
    attempt = start(base, resume=True, begins=False, algo=algo, allow_identity_drift=True)
    assert (attempt.path / "identity.json").read_bytes() == before
    assert start(base, resume=True).row_marks == {}


def test_uncommitted_changes_are_kept_when_a_run_begins(base, code):
    code.update(changes="ab" * 32, changed_files=("a.py", "b.py"), diff=b"+x = 1\n")
    attempt = start(base, step=10)
    assert (attempt.path / "source.diff").read_bytes() == b"+x = 1\n"
    assert attempt.row_marks == {}
    assert start(base, resume=True).row_marks == {}


def test_other_uncommitted_changes_need_a_permission_of_their_own(base, code):
    code.update(changes="ab" * 32, changed_files=("a.py",), diff=b"+x = 1\n")
    start(base, step=10)
    code.update(changes="cd" * 32, diff=b"+x = 2\n")
    error = refuse(base, IdentityDriftError, "source.royale.changes: abababab")
    assert "--allow-dirty" in str(error)
    attempt = start(base, resume=True, allow_dirty=True)
    assert last_row(attempt)[DIRTY_MARK] == 1.0
    assert len(events(attempt, "dirty")) == 1
    assert (attempt.path / "source.diff").read_bytes() == b"+x = 1\n"
    assert (attempt.path / "source.attempt_2.diff").read_bytes() == b"+x = 2\n"
    assert last_row(start(base, resume=True))[DIRTY_MARK] == 1.0


def test_code_that_git_cannot_describe_is_no_obstacle(base, code):
    start(base, step=10)
    code.update(commit=UNKNOWN, changes=UNKNOWN, problem="git is not installed")
    assert start(base, resume=True).row_marks == {}


def test_a_run_of_an_earlier_version_gets_its_identity_now(base, code, caplog):
    attempt = start(base, step=10)
    (attempt.path / "identity.json").unlink()
    start(base, resume=True)
    assert "the run has no identity.json" in caplog.text
    refuse(base, IdentityDriftError, "seed: 0 in the run, 1 now", seed=1)


def test_an_unreadable_identity_is_refused(base, code):
    attempt = start(base, step=10)
    (attempt.path / "identity.json").write_text("{")
    refuse(base, ConfigError, "identity.json: cannot be understood")


# --- environments ---------------------------------------------------------------------------------


def test_environments_are_remembered_from_one_attempt_to_the_next(base, code):
    first = start(base, step=10, environments=[CARTPOLE, CARTPOLE])
    assert first.environment_difference("Pendulum-v1", "b") is None  # a run that begins
    attempt = start(base, resume=True)
    assert remembered(attempt) == [CARTPOLE]
    assert attempt.environment_difference(*CARTPOLE) is None
    assert "CartPole-v1: aaaaaaaaaaaa in the run, b now" in str(
        attempt.environment_difference("CartPole-v1", "b")
    )


def test_another_environment_that_was_let_in_is_remembered_and_marks_later_rows(base, code):
    start(base, step=10, environments=[CARTPOLE])
    other = ("CartPole-v1", "b" * 16)
    attempt = start(base, resume=True, environments=[other], allow_identity_drift=True)
    assert last_row(attempt)[DRIFT_MARK] == 1.0
    (event,) = events(attempt, "identity_drift")
    assert event["differences"][0]["field"] == "environment CartPole-v1"
    third = start(base, resume=True, environments=[other])
    assert remembered(third) == [CARTPOLE, other]
    assert last_row(third)[DRIFT_MARK] == 1.0
    assert len(events(third, "identity_drift")) == 1


def test_an_environment_that_comes_later_is_on_disk_before_any_later_row(base, code):
    seen = []
    with open_attempt(config(base), pytest.fail) as attempt:
        attempt.begin()
        attempt.note_environment(*CARTPOLE)
        attempt.writer.metrics({}, 1, lambda _: seen.extend(remembered(attempt)))
    assert seen == [CARTPOLE]


def test_only_the_writers_thread_waits_for_the_disk_when_environments_come(base, code, monkeypatch):
    start(base, step=10, environments=[CARTPOLE])
    allowed = config(base, resume=True, seed=1, allow_identity_drift=True)
    with open_attempt(allowed, pytest.fail) as attempt:
        fsync, threads = os.fsync, set()

        def watch(descriptor):
            threads.add(threading.current_thread().name)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", watch)
        attempt.begin()
        attempt.note_environment("Acrobot-v1", "b")
        assert attempt.writer.flush(30)
        assert threads == {"writer"}
        assert remembered(attempt) == [CARTPOLE, ("Acrobot-v1", "b")]
        monkeypatch.undo()


def test_a_disk_that_refuses_the_identity_does_not_end_the_run(base, code, monkeypatch, caplog):
    with open_attempt(config(base), pytest.fail) as attempt:
        attempt.begin()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", raise_full)
            attempt.note_environment(*CARTPOLE)
            assert attempt.writer.flush(30)
        assert "identity.json cannot be written: No space left" in caplog.text
        attempt.writer.checkpoint(contents(10))
    assert remembered(attempt) == [CARTPOLE]


def flood(attempt):
    """One environment more than the run remembers, and then two more, twice."""
    for number in [*range(MAX_ENVIRONMENTS + 3), *range(MAX_ENVIRONMENTS + 3)]:
        attempt.note_environment("A", str(number))


def test_beyond_a_limit_environments_are_no_longer_remembered_which_is_said_once(
    base, code, caplog
):
    with open_attempt(config(base), pytest.fail) as attempt:
        attempt.begin()
        flood(attempt)
    assert remembered(attempt) == [("A", str(n)) for n in range(MAX_ENVIRONMENTS)]
    assert caplog.text.count("the run remembers 256 environments and no more") == 1
    (event,) = events(attempt, "environments_full")
    assert "--allow-identity-drift" in event["message"]


def test_beyond_the_limit_a_resumed_run_is_marked_by_the_first_stranger_and_grows_no_more(
    base, code
):
    first = start(base, step=10, environments=[("A", str(n)) for n in range(MAX_ENVIRONMENTS)])
    with open_attempt(config(base, resume=True, allow_identity_drift=True), pytest.fail) as attempt:
        attempt.begin()
        flood(attempt)
        assert attempt.row_marks == {DRIFT_MARK: 1.0}
    # The two other strangers, and all of them when they come again, change nothing.
    record = read_identity(first.path / "identity.json")
    assert [change.differences[0]["new"] for change in record.changes] == ["256"]
    assert len(record.environments) == MAX_ENVIRONMENTS
    assert len(events(attempt, "identity_drift")) == len(events(attempt, "environments_full")) == 1


# --- settings that may change ---------------------------------------------------------------------


def test_what_may_change_is_said_old_and_new(base, code, caplog):
    start(base, step=400, save_every=10)
    with caplog.at_level("INFO"):
        attempt = start(base, resume=True, save_every=5, algo=PPOConfig(total_timesteps=2000))
    assert "changed: algo.total_timesteps: 1000 -> 2000" in caplog.messages
    assert "changed: save_every: 10 -> 5" in caplog.messages
    (event,) = events(attempt, "config_changed")
    assert event["changes"] == [
        {"field": "algo.total_timesteps", "old": "1000", "new": "2000"},
        {"field": "save_every", "old": "10", "new": "5"},
    ]
    assert attempt.row_marks == {}


# --- finished runs --------------------------------------------------------------------------------


def test_a_finished_run_is_refused_with_the_command_that_goes_on(base, code, monkeypatch):
    words = ["mlp-policy", "default", "ppo", "default"]
    monkeypatch.setattr(sys, "argv", ["royale-server", *words, "--exp-name", "exp"])
    start(base, step=1000)
    error = refuse(base, RunFinishedError, "the run is finished: 1000 of 1000 frames collected")
    assert str(error).splitlines()[1] == (
        "train on with: royale-server mlp-policy default ppo default --exp-name exp --resume "
        "--until-timesteps 2000"
    )
    refuse(base, RunFinishedError, "1000 of 900 frames", until_timesteps=900)
    refuse(base, RunFinishedError, "1000 of 1000 frames", until_timesteps=1000)
    assert start(base, resume=True, until_timesteps=1001).resumed.step == 1000


def test_a_run_that_has_met_its_goal_is_finished_too(base, code):
    start(base, step=500, returns=[1.0, 7.0, 9.0])
    algo = PPOConfig(total_timesteps=1000, stop_at_return=8.0, stop_window=2)
    refuse(base, RunFinishedError, "mean return of the last 2 episodes is 8.0", algo=algo)
    higher = replace(algo, stop_at_return=8.5)
    assert start(base, resume=True, algo=higher).resumed.step == 500


def test_frames_that_are_stored_and_not_learnt_from_do_not_finish_a_run(base, code):
    start(base, step=1010, learnt=960)
    assert start(base, resume=True).resumed.step == 1010


def test_the_refusal_reads_what_the_learner_writes():
    # The refusal comes before torch is loaded, so the names are written down a second time.
    assert (finished.STATE, finished.LEARNER) == (saved_run.STATE, saved_run.LEARNER)
    learner = object.__new__(DummyLearner)
    Learner.__init__(learner, DummyConfig(), None, seed=0)
    assert {finished.GLOBAL_STEP, finished.RECENT_RETURNS} <= set(learner._counters())


# --- taking over ----------------------------------------------------------------------------------


def leave_record(attempt, **changes):
    record = {"pid": 4194305, "host": "box", "since": "2026-11-30T07:00:00+00:00", **changes}
    (attempt.path / "lock").write_text(json.dumps(record))


def test_taking_over_from_a_process_that_is_gone_is_an_event_with_the_evidence(base, code, caplog):
    here = this_process()
    first = start(base, step=10)
    leave_record(first, host=here.host, boot_id="earlier", start_ticks=5)
    attempt = start(base, resume=True)
    (event,) = events(attempt, "taken_over")
    assert event["owner"] == {
        "pid": 4194305,
        "host": here.host,
        "since": "2026-11-30T07:00:00+00:00",
        "boot_id": "earlier",
    }
    if here.boot_id is not None:
        assert "started anew" in event["evidence"]
    assert event["evidence"] in event["message"]
    assert event["message"] in caplog.text


def test_a_process_on_another_machine_is_not_said_to_have_crashed(base, code):
    first = start(base, step=10)
    leave_record(first)
    (event,) = events(start(base, resume=True), "taken_over")
    assert "box, which cannot be asked from here, so how it ended is unknown" in event["message"]


def test_after_a_clean_end_nothing_is_taken_over(base, code):
    start(base, step=10)
    assert events(start(base, resume=True), "taken_over") == []


def test_a_run_that_a_process_works_on_is_refused_by_its_lock(base, code):
    attempt = start(base, step=10)
    lock = RunLock(attempt.path / "lock")
    before = fingerprint(base)
    with pytest.raises(Exception, match="in use by process"):
        start(base, resume=True)
    assert fingerprint(base) == before
    lock.release()


# --- nothing of an earlier attempt is overwritten -------------------------------------------------

REPLACED = {"config.json", "identity.json", "lock"}
"""Files that say how things are now."""


def test_what_an_earlier_attempt_wrote_stays_as_it_was(base, code):
    code.update(changes="ab" * 32, changed_files=("a.py",), diff=b"+x = 1\n")
    first = start(base, step=10, environments=[CARTPOLE])
    first.log_file.write_text("said by the first attempt\n")
    with (first.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"seq": 2, "st')  # as a crash leaves it
    files = [p for p in first.path.rglob("*") if p.is_file() and not p.is_symlink()]
    before = {path: path.read_bytes() for path in files if path.name not in REPLACED}
    assert len(before) >= 9

    code.update(changes="cd" * 32, diff=b"+x = 2\n")
    allowed = {"allow_dirty": True, "save_every": 3, "environments": [CARTPOLE]}
    for step in (20, 30):
        start(base, resume=True, step=step, **allowed)
    for path, data in before.items():
        now = path.read_bytes()
        assert now[: len(data)] == data, path
        assert len(now) == len(data) or path.suffix == ".jsonl", path
    records, torn = read_records(first.path / "metrics.jsonl")
    assert [(row["attempt"], row["seq"]) for row in records] == [(1, 1), (2, 2), (3, 3)]
    assert torn == 1
    assert list_steps(first.path) == [10, 20, 30]
