"""Existing runs: resumed, overwritten or left alone; until that is clear nothing is touched."""

import errno
import json
import logging
import os
from datetime import UTC, datetime

import pytest

from checkpoints import list_steps, save
from royale_client.wire.errors import ConfigError
from royale_server.run import directory as directory_module
from royale_server.run.directory import create
from royale_server.run.lock import RunInUseError, RunLock, holder
from royale_server.run.prepare import RunExistsError, RunNotFoundError, plan
from royale_server.shown_words import without_secrets
from tests.run.runs import CONFIG, fingerprint, finished_run, make_contents, open_run, plan_run


@pytest.fixture
def base(tmp_path):
    return tmp_path / "runs"


def refuse(base, error, match, name="exp", **flags):
    """Expect a refusal that leaves the disk byte for byte as it was."""
    before = fingerprint(base.parent)
    with pytest.raises(error, match=match) as caught:
        open_run(base, name, **flags)
    assert fingerprint(base.parent) == before
    return caught.value


# --- {nothing there, a run there} × {no flag, --resume, --overwrite}, and both flags --------------


def test_nothing_there_and_no_flag_starts_a_run(base):
    with open_run(base) as run:
        assert run.plan.mode == "fresh"
        assert run.attempt == 1
        assert run.layout.directory == base / "ppo" / "mlp-policy" / "exp"


def test_nothing_there_and_overwrite_starts_a_run(base):
    with open_run(base, overwrite=True) as run:
        assert run.plan.mode == "fresh"


def test_nothing_there_and_resume_is_refused_and_creates_nothing(base):
    error = refuse(
        base, RunNotFoundError, "no run to resume; check --checkpoint-base-dir", resume=True
    )
    assert isinstance(error, FileNotFoundError)
    assert not base.exists()


def test_a_run_there_and_no_flag_is_refused_naming_both_flags(base):
    finished_run(base)
    error = refuse(base, RunExistsError, "exists; add --resume .* --overwrite .* --exp-name")
    assert isinstance(error, FileExistsError)


def test_a_run_there_and_resume_continues_it(base):
    layout = finished_run(base, steps=(10, 200))
    with open_run(base, resume=True) as run:
        assert run.plan.mode == "resume"
        assert run.attempt == 2
        assert run.plan.checkpoint == layout.checkpoint(200)
        assert run.plan.skipped == ()


def test_a_run_there_and_overwrite_starts_anew(base):
    layout = finished_run(base)
    old_id = json.loads(layout.run_json.read_text())["id"]
    with open_run(base, overwrite=True) as run:
        assert run.plan.mode == "overwrite"
        assert run.attempt == 1
        assert run.run_id != old_id
        assert not layout.metrics.exists()
        assert list_steps(layout.directory) == []


@pytest.mark.parametrize("existing", [False, True])
def test_both_flags_are_refused(base, existing):
    if existing:
        finished_run(base)
    base.mkdir(exist_ok=True)
    refuse(base, ConfigError, "--resume and --overwrite: got both", resume=True, overwrite=True)


# --- who else may be there ------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_a_run_that_a_process_works_on_is_refused(base, flags):
    layout = finished_run(base)
    lock = RunLock(layout.lock)
    error = RunInUseError if flags else RunExistsError
    refuse(base, error, rf"in use by process {os.getpid()}" if flags else "exists", **flags)
    lock.release()


def test_of_two_starts_that_were_both_possible_only_one_happens(base):
    first, second = plan_run(base), plan_run(base)
    with create(first, config=CONFIG, seed=3) as run, pytest.raises(RunExistsError):
        create(second, config=CONFIG, seed=3)
    record = run.layout.run_json.read_bytes()
    with pytest.raises(RunExistsError):
        create(second, config=CONFIG, seed=3)
    assert run.layout.run_json.read_bytes() == record


def test_of_two_starts_in_one_empty_directory_the_loser_leaves_the_winner_alone(base):
    (base / "ppo" / "mlp-policy" / "exp").mkdir(parents=True)
    second = plan_run(base)
    with open_run(base) as run:
        # As if the second had looked at the directory before the first wrote into it.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(directory_module, "is_free", lambda _: True)
            with pytest.raises(RunInUseError):
                create(second, config=CONFIG, seed=3)
        run.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(directory_module, "is_free", lambda _: True)
            with pytest.raises(RunExistsError, match="used by another process just now"):
                create(second, config=CONFIG, seed=3)
        assert run.layout.run_json.is_file()
        assert holder(run.layout.lock) is None


def test_two_resumes_race_for_the_lock(base):
    finished_run(base)
    first, second = plan_run(base, resume=True), plan_run(base, resume=True)
    with create(first, config=CONFIG, seed=3), pytest.raises(RunInUseError):
        create(second, config=CONFIG, seed=3)


def test_a_run_whose_process_died_is_taken_over_and_says_from_whom(base):
    layout = finished_run(base)
    layout.lock.write_text('{"pid": 4194305, "host": "box", "since": "2026-11-30T07:00:00+00:00"}')
    with open_run(base, resume=True) as run:
        assert run.taken_over is not None
        assert run.taken_over.pid == 4194305
    with open_run(base, resume=True) as run:
        assert run.taken_over is None


# --- what counts as a run -------------------------------------------------------------------------


def test_an_empty_directory_is_as_good_as_none(base):
    (base / "ppo" / "mlp-policy" / "exp").mkdir(parents=True)
    refuse(base, RunNotFoundError, "no run to resume", resume=True)
    with open_run(base) as run:
        assert run.attempt == 1


def test_a_foreign_directory_is_neither_resumed_nor_overwritten(base):
    folder = base / "ppo" / "mlp-policy" / "exp"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("years of work")
    refuse(base, RunExistsError, "exists; add --resume")
    refuse(base, RunNotFoundError, "no run to resume", resume=True)
    refuse(base, RunExistsError, "is not a run .* --overwrite leaves it alone", overwrite=True)


def test_a_file_in_place_of_the_directory_is_refused(base):
    (base / "ppo" / "mlp-policy").mkdir(parents=True)
    (base / "ppo" / "mlp-policy" / "exp").write_text("a file")
    refuse(base, RunExistsError, "exists")
    refuse(base, RunExistsError, "is not a run", overwrite=True)


@pytest.mark.parametrize("linked", ["ppo", "ppo/mlp-policy", "ppo/mlp-policy/exp"])
def test_overwrite_never_goes_through_a_link(base, tmp_path, linked):
    finished_run(tmp_path / "elsewhere")
    target = tmp_path / "elsewhere" / linked
    (base / linked).parent.mkdir(parents=True)
    (base / linked).symlink_to(target)
    refuse(base, RunExistsError, "does not follow the link", overwrite=True)


def test_a_dangling_link_is_no_free_name(base):
    (base / "ppo" / "mlp-policy").mkdir(parents=True)
    (base / "ppo" / "mlp-policy" / "exp").symlink_to("gone")
    refuse(base, RunExistsError, "exists")
    refuse(base, RunExistsError, "does not follow the link", overwrite=True)


def test_the_folder_of_all_runs_may_be_a_link(base, tmp_path):
    (tmp_path / "big-disk").mkdir()
    base.symlink_to(tmp_path / "big-disk")
    finished_run(base)
    with open_run(base, overwrite=True) as run:
        assert run.plan.mode == "overwrite"


def test_a_run_without_a_whole_checkpoint_cannot_be_resumed_and_the_torn_one_is_named(base):
    layout = finished_run(base)
    (layout.checkpoint(10) / "model.safetensors").write_bytes(b"torn")
    refuse(base, RunNotFoundError, "no whole checkpoint; not whole: 10; --overwrite", resume=True)


def test_a_torn_newest_checkpoint_is_passed_over_and_reported(base):
    layout = finished_run(base, steps=(10, 20))
    (layout.checkpoint(20) / "model.safetensors").write_bytes(b"torn")
    found = plan_run(base, resume=True)
    assert found.checkpoint == layout.checkpoint(10)
    assert [skip.path for skip in found.skipped] == [layout.checkpoint(20)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "run.json cannot be read"),
        ('{"schema": 2, "id": "x"}', "expected schema 1"),
        ("[]", "schema"),
    ],
)
def test_a_run_that_says_nothing_understandable_about_itself_cannot_be_resumed(base, text, says):
    layout = finished_run(base)
    layout.run_json.write_text(text)
    refuse(base, RunNotFoundError, says, resume=True)


# --- names ----------------------------------------------------------------------------------------


def test_without_a_name_every_start_gets_a_directory_of_its_own(base):
    now = datetime(2026, 11, 30, 7, 3, 12, tzinfo=UTC)

    def unnamed():
        return plan(base, algorithm="ppo", policy="mlp-policy", name=None, seed=3, now=now)

    first, rival = unnamed(), unnamed()
    names = []
    for planned in (first, rival):
        with create(planned, config=CONFIG, seed=3) as run:
            names.append(run.layout.name)
    with create(unnamed(), config=CONFIG, seed=3) as run:
        names.append(run.layout.name)
    assert names == ["20261130-070312-seed3", "20261130-070312-seed3-2", "20261130-070312-seed3-3"]


def test_resume_without_a_name_is_refused_and_says_what_there_is(base):
    refuse(base, RunNotFoundError, "--resume: needs --exp-name.*there is none", None, resume=True)
    finished_run(base, "alpha")
    refuse(base, RunNotFoundError, "the last ones there are alpha", None, resume=True)


def test_a_bad_name_is_refused_before_anything_exists(base):
    refuse(base, ConfigError, "cannot name a folder", "../escape")
    assert not base.exists()


# --- what is written ------------------------------------------------------------------------------


def test_run_json_says_what_the_run_is_and_is_written_once(base):
    planned = plan_run(base)
    argv = ["royale-server", "ppo", "--token", "s3cret"]
    with create(planned, config=CONFIG, seed=3, argv=argv, facts={"config_digest": "ab"}) as run:
        record = json.loads(run.layout.run_json.read_text())
    assert record == run.record
    assert {k: record[k] for k in ("schema", "name", "algorithm", "policy", "seed")} == {
        "schema": 1,
        "name": "exp",
        "algorithm": "ppo",
        "policy": "mlp-policy",
        "seed": 3,
    }
    assert record["argv"] == ["royale-server", "ppo", "--token", "…"]
    assert record["config_digest"] == "ab"
    assert len(record["id"]) == 32
    assert {"python", "torch", "numpy"} <= set(record["versions"])
    assert datetime.fromisoformat(record["created"]).tzinfo is not None

    save(run.layout.directory, make_contents(5))
    before = run.layout.run_json.read_bytes()
    with open_run(base, resume=True) as again:
        assert again.run_id == record["id"]
    assert run.layout.run_json.read_bytes() == before


def test_each_attempt_keeps_its_own_config_and_logs(base):
    layout = finished_run(base)
    for attempt in (2, 3):
        planned = plan_run(base, resume=True)
        assert planned.attempt == attempt
        with create(planned, config={**CONFIG, "attempt": attempt}, seed=3):
            assert os.readlink(layout.latest_logs) == f"attempt_{attempt}"
    assert json.loads(layout.config.read_text())["attempt"] == 3
    assert json.loads(layout.attempt_config(2).read_text())["attempt"] == 2
    assert json.loads(layout.attempt_config(1).read_text()) == CONFIG
    assert all(layout.attempt_logs(n).is_dir() for n in (1, 2, 3))


def test_an_attempt_gets_a_new_number_even_if_the_logs_were_deleted(base):
    layout = finished_run(base)
    layout.latest_logs.unlink()
    layout.attempt_logs(1).rmdir()
    with open_run(base, resume=True) as run:
        assert run.attempt == 2


def test_resuming_clears_what_a_killed_save_left(base):
    layout = finished_run(base)
    (layout.directory / ".tmp-20-99-0a1b2c3d").mkdir()
    with open_run(base, resume=True):
        assert not (layout.directory / ".tmp-20-99-0a1b2c3d").exists()


# --- overwriting ----------------------------------------------------------------------------------


def set_aside(layout):
    return [path for path in layout.siblings.iterdir() if path.name.startswith(".overwritten-")]


def test_the_old_run_is_kept_aside_until_the_new_one_has_a_checkpoint(base):
    old = fingerprint(finished_run(base).directory)
    with open_run(base, overwrite=True) as run:
        (aside,) = set_aside(run.layout)
        assert fingerprint(aside) == old
        assert run.set_aside == aside
        save(run.layout.directory, make_contents(1))
        run.first_checkpoint_written()
        assert set_aside(run.layout) == []
        run.first_checkpoint_written()
    assert list_steps(run.layout.directory) == [1]


def test_a_new_run_that_never_had_a_checkpoint_leaves_the_old_one_and_says_where(base, caplog):
    finished_run(base)
    run = open_run(base, overwrite=True)
    run.close()
    (aside,) = set_aside(run.layout)
    assert str(aside) in caplog.text
    assert list_steps(aside) == [10]


def test_runs_of_other_names_moved_aside_are_not_removed(base):
    for name in ("exp", "my-exp"):
        finished_run(base, name)
        open_run(base, name, overwrite=True).close()
    assert len(set_aside(plan_run(base, "new").layout)) == 2
    with open_run(base, "exp", overwrite=True) as run:
        run.first_checkpoint_written()
    (left,) = set_aside(run.layout)
    assert left.name.endswith("-my-exp")


def test_what_a_kill_between_checkpoint_and_removal_left_goes_at_the_next_resume(base):
    finished_run(base)
    with open_run(base, overwrite=True) as run:
        save(run.layout.directory, make_contents(1))
    assert len(set_aside(run.layout)) == 1
    with open_run(base, resume=True):
        assert set_aside(run.layout) == []


# --- failing half-way -----------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["_write_new", "_write_attempt", "_link_latest_logs"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_start_that_fails_half_way_is_undone(base, monkeypatch, failing, overwrite):
    if overwrite:
        finished_run(base)
    else:
        (base / "ppo" / "mlp-policy").mkdir(parents=True)
    before = fingerprint(base)

    def fail(*_args, **_keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(directory_module, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        open_run(base, overwrite=overwrite)
    assert fingerprint(base) == before


def test_a_run_that_never_began_can_be_discarded(base):
    old = finished_run(base)
    before = fingerprint(base)
    open_run(base, overwrite=True).discard()
    assert fingerprint(base) == before
    open_run(base, "other").discard()
    assert fingerprint(base) == before
    open_run(base, resume=True).discard()
    assert holder(old.lock) is None
    assert list_steps(old.directory) == [10]


def test_moving_aside_is_logged(base, caplog):
    finished_run(base)
    with caplog.at_level(logging.INFO), open_run(base, overwrite=True):
        assert "moved the run" in caplog.text


# --- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--token", "abc", "--seed", "1"], ["--token", "…", "--seed", "1"]),
        (["--token=abc"], ["--token=…"]),
        (
            ["--track.api-key", "k", "--track.api_key=k"],
            ["--track.api-key", "…", "--track.api_key=…"],
        ),
        (["--token-file", "path.txt"], ["--token-file", "path.txt"]),
        (["--PASSWORD", "x"], ["--PASSWORD", "…"]),
        (["ws://user:pw@host:1/x"], ["ws://…@host:1/x"]),
        (["--url=wss://host/?a=1&token=abc&b=2"], ["--url=wss://host/?a=1&token=…&b=2"]),
        (["--monkey", "banana"], ["--monkey", "banana"]),
        (["--apikey", "k", "--authtoken=k"], ["--apikey", "…", "--authtoken=…"]),
        (["https://h/?API_KEY=k&x.password=p#f"], ["https://h/?API_KEY=…&x.password=…"]),
        (["http://me:k@h/?monkey=1&secret=k"], ["http://…@h/?monkey=1&secret=…"]),
    ],
)
def test_secrets_in_a_command_line_are_not_recorded(argv, shown):
    assert without_secrets(argv) == shown
