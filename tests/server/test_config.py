"""Settings of the server: ranges, what excludes what, the recorded document, the machine."""

import dataclasses
import hashlib
import json
import re
import ssl
from pathlib import Path

import pytest

from algorithms.ppo.config import PPOConfig
from checkpoints.manifest import MANIFEST_NAME
from royale_client.wire.errors import ConfigError
from royale_client.wire.limits import Limits
from royale_server.config import Pair, ServerConfig, TrackConfig, is_loopback
from royale_server.config_document import digest, to_document
from royale_server.preconditions import MANIFEST, precondition_problems, read_tls, read_token
from royale_server.run.identity import resume_rules
from royale_server.scheduler.config import Dispatch
from tests.certificates import CERT, ENCRYPTED_KEY, KEY, OTHER_CERT

PAIR = Pair(policy="mlp-policy", policy_variant="default", algo="ppo", algo_variant="default")


def config(**changes):
    return ServerConfig(**{"pair": PAIR, "policy": None, "algo": None, **changes})


def problems(**changes):
    with pytest.raises(ConfigError) as refused:
        config(**changes)
    return str(refused.value).splitlines()


def machine_problems(settings, *given, **environ):
    return precondition_problems(settings, {(name,) for name in given}, environ)


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("port", 65536, "0 to 65,535"),
        ("port", -1, "0 to 65,535"),
        ("seed", -1, "0 to 4,294,967,295"),
        ("seed", 2**32, "0 to 4,294,967,295"),
        ("save_every", 0, "at least 1"),
        ("keep_last", 0, "at least 1"),
        ("keep_every", 0, "at least 1"),
        ("until_timesteps", 0, "at least 1"),
        ("exit_when_idle", -0.5, "at least 0"),
        ("torch_threads", 0, "1 to 1,024"),
        ("min_clients", 0, "1 to 1,024"),
        ("min_clients", 1025, "1 to 1,024"),
        ("mini_infer_batch_size", 0, "at least 1"),
        ("patience", 0.9, "at least 1"),
        ("close_wait", -1.0, "at least 0"),
        ("feedback_wait_timeout", 0.0, "at least 0.001"),
        ("first_step_timeout", float("nan"), "at least 0.001"),
        ("max_slots", 0, "1 to 16,777,216"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(name, value, expected):
    assert f"{name}: got {value}, expected {expected}" in problems(**{name: value})


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "with space", "x" * 129])
def test_a_run_name_must_be_a_plain_folder_name(name):
    assert problems(exp_name=name)[0].startswith(f"exp_name: got {name!r}")


def test_the_device_is_one_that_torch_knows():
    assert config(device="cuda:1").device == "cuda:1"
    assert problems(device="gpu") == ["device: got 'gpu', expected auto, cpu, cuda or cuda:N"]


def test_all_problems_are_listed_at_once():
    found = problems(port=-1, seed=-1, resume=True, overwrite=True, exp_name="first")
    assert [problem.partition(":")[0] for problem in found] == ["seed", "port", "resume"]


# --- what excludes what ----------------------------------------------------------------------


def test_resume_and_overwrite_exclude_each_other():
    assert problems(resume=True, overwrite=True, exp_name="first") == [
        "resume: excludes --overwrite; one continues the run, the other replaces it"
    ]


@pytest.mark.parametrize("flag", ["allow_identity_drift", "allow_dirty"])
def test_what_only_a_resumed_run_can_allow_is_refused_elsewhere(flag):
    assert problems(**{flag: True})[0].startswith(f"{flag}: only counts with --resume")
    assert getattr(config(resume=True, exp_name="first", **{flag: True}), flag)


def test_overwriting_needs_the_name_of_a_run():
    assert problems(overwrite=True)[0].startswith("overwrite: needs --exp-name NAME")
    assert config(overwrite=True, exp_name="first").exp_name == "first"


def test_a_resumed_run_takes_no_weights_from_another():
    algo = PPOConfig(policy_checkpoint_path=Path("runs/x/1"))
    assert problems(resume=True, exp_name="first", algo=algo)[0].startswith(
        "resume: excludes --algo.policy-checkpoint-path"
    )


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"max_infer_batch_size": 4}, "max_infer_batch_size"),
        ({"max_infer_wait_ms": 1.0}, "max_infer_wait_ms"),
        ({"dispatch": "dynamic", "mini_infer_batch_size": 4}, "mini_infer_batch_size"),
        ({"dispatch": "dynamic", "deterministic": True}, "deterministic"),
        ({"mini_infer_batch_size": 4, "deterministic": True}, "deterministic"),
        ({"inline_num_envs": 4}, "inline_num_envs"),
        ({"inline_env_kwargs": "{}"}, "inline_env_kwargs"),
        ({"inline": "CartPole-v1", "port": 1}, "port"),
        ({"inline": "CartPole-v1", "host": "0.0.0.0"}, "host"),
        ({"inline": "CartPole-v1", "unix_socket": Path("s")}, "unix_socket"),
        ({"inline": "CartPole-v1", "tcp": False}, "tcp"),
        ({"tcp": False}, "tcp"),
        ({"tcp": False, "unix_socket": Path("s"), "host": "0.0.0.0"}, "host"),
        ({"tcp": False, "unix_socket": Path("s"), "port": 0}, "port"),
        ({"inline": "CartPole-v1", "min_clients": 2}, "min_clients"),
        ({"inline": "CartPole-v1", "token_file": Path("t")}, "token_file"),
        ({"inline": "CartPole-v1", "exit_when_idle": 1.0}, "exit_when_idle"),
        ({"inline": "CartPole-v1", "inline_env_kwargs": "[1]"}, "inline_env_kwargs"),
        ({"inline": "CartPole-v1", "inline_env_kwargs": "{oops"}, "inline_env_kwargs"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(changes, about):
    assert [problem.partition(":")[0] for problem in problems(**changes)] == [about]


def test_few_slots_are_enough_for_clients_whatever_inline_would_take():
    assert config(max_slots=2).max_slots == 2
    assert problems(inline="CartPole-v1", max_slots=2)[0].startswith("inline_num_envs: got 8")


def test_a_json_object_is_taken_as_inline_keyword_arguments():
    text = '{"gravity": 5.0}'
    assert config(inline="CartPole-v1", inline_env_kwargs=text).inline_env_kwargs == text


def test_a_tracker_needs_a_project():
    with pytest.raises(ConfigError, match="project: is empty"):
        TrackConfig(project=" ")


def test_settings_of_self_play_belong_to_the_identity_of_a_run():
    rules = resume_rules(config())
    names = [name for name in rules if name.startswith("selfplay.")]
    assert len(names) == 5
    assert {rules[name] for name in names} == {"same"}


# --- what others get -------------------------------------------------------------------------


def test_the_frame_rules_get_their_settings_in_seconds():
    scheduler = config(
        dispatch="dynamic",
        max_infer_batch_size=64,
        max_infer_wait_ms=2.5,
        min_clients=3,
        max_slots=100,
        patience=4.0,
        close_wait=0.5,
        first_step_timeout=10.0,
        feedback_wait_timeout=20.0,
    ).scheduler()
    assert scheduler.dispatch is Dispatch.DYNAMIC
    assert scheduler.max_infer_batch_size == 64
    assert scheduler.max_infer_wait_s == 0.0025
    assert scheduler.min_clients == 3
    assert scheduler.max_slots == 100
    assert scheduler.patience == 4.0
    assert scheduler.close_wait_s == 0.5
    assert scheduler.first_step_timeout_s == 10.0
    assert scheduler.feedback_wait_timeout_s == 20.0
    assert not scheduler.deterministic


def test_the_document_is_json_with_every_default_and_without_the_dry_run():
    document = to_document(config(algo=PPOConfig(), checkpoint_base_dir=Path("a/b")))
    assert json.loads(json.dumps(document)) == document
    assert document["pair"]["algo"] == "ppo"
    assert document["algo"]["clip_coef"] == 0.2
    assert document["algo"]["policy_checkpoint_path"] is None
    assert document["checkpoint_base_dir"] == "a/b"
    assert document["track"] == {
        "enabled": False,
        "tracker": "swanlab",
        "project": "royale",
        "mode": "offline",
    }
    assert set(document) == {f.name for f in dataclasses.fields(ServerConfig)} - {"dry_run"}


def test_the_document_never_holds_a_token(tmp_path, monkeypatch):
    monkeypatch.setenv("ROYALE_TOKEN", "from-the-environment")
    file = tmp_path / "token"
    file.write_text("from-the-file\n")
    text = json.dumps(to_document(config(token_file=file)))
    assert "from-the-environment" not in text
    assert "from-the-file" not in text


def test_a_setting_without_a_json_form_is_a_defect():
    with pytest.raises(TypeError, match=r"config\.policy: a setting of type object"):
        to_document(config(policy=object()))


def test_the_digest_is_that_of_the_values_whatever_their_order():
    # SHA-256 of the text {"a":1,"b":[2]}
    expected = hashlib.sha256(b'{"a":1,"b":[2]}').hexdigest()
    assert digest({"b": [2], "a": 1}) == digest({"a": 1, "b": [2]}) == expected
    assert digest(to_document(config(seed=1))) != digest(to_document(config(seed=2)))


# --- the machine -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_addresses_need_no_token(host):
    assert is_loopback(host)
    assert machine_problems(config(host=host)) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "trainer.example", ""])
def test_a_bind_beyond_loopback_without_a_token_is_refused(host):
    (problem,) = machine_problems(config(host=host))
    assert problem.startswith(f"--host: {host} can be reached from other machines")
    assert "ROYALE_TOKEN" in problem
    assert machine_problems(config(host=host), ROYALE_TOKEN="s3cret") == []


def test_certificate_with_its_key_is_taken_from_one_file_or_from_two(tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes(CERT.read_bytes() + KEY.read_bytes())
    assert read_tls(config()) is None
    for flags in ({"tls_cert": CERT, "tls_key": KEY}, {"tls_cert": both}):
        context = read_tls(config(**flags))
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"tls_cert": CERT}, "PEM files with a certificate and its own"),
        ({"tls_cert": KEY, "tls_key": KEY}, "PEM files"),
        ({"tls_cert": OTHER_CERT, "tls_key": KEY}, "PEM files"),
        ({"tls_cert": CERT, "tls_key": ENCRYPTED_KEY}, "not encrypted"),
        ({"tls_cert": CERT.with_name("none")}, "cannot be read: No such file"),
    ],
)
def test_certificate_that_proves_nothing_is_refused_before_anything_is_created(flags, complaint):
    (problem,) = machine_problems(config(**flags))
    assert problem.startswith("--tls-cert ")
    assert complaint in problem


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"tls_key": KEY}, "tls_key: only counts with --tls-cert"),
        ({"tcp": False, "unix_socket": Path("s"), "tls_cert": CERT}, "tls_cert: excludes --no-tcp"),
        ({"inline": "CartPole-v1", "tls_cert": CERT}, "tls_cert: excludes --inline"),
        ({"inline": "CartPole-v1", "allow_host": ("a",)}, "allow_host: excludes --inline"),
        ({"max_message_mib": 0}, "max_message_mib: got 0, expected 1 to 1,024"),
        ({"max_log_rate": 0}, "max_log_rate: got 0"),
    ],
)
def test_security_flags_that_make_no_sense_are_refused(flags, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        config(**flags)


def test_message_limit_of_the_configuration_is_that_of_the_sessions():
    assert config(max_message_mib=3).limits().max_message_bytes == 3 * 2**20
    assert config().limits() == Limits()


def test_a_token_file_wins_over_the_environment(tmp_path):
    file = tmp_path / "token"
    file.write_text("  from-file \nsecond line\n")
    assert read_token(config(token_file=file), {"ROYALE_TOKEN": "x"}) == "from-file"
    assert read_token(config(), {"ROYALE_TOKEN": "x"}) == "x"
    assert read_token(config(), {}) is None
    assert machine_problems(config(host="0.0.0.0", token_file=file)) == []


@pytest.mark.parametrize("content", ["", "\n", "two words", "pässword"])
def test_a_token_that_cannot_travel_is_refused_without_showing_it(tmp_path, content):
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    (problem,) = machine_problems(config(token_file=file))
    assert str(file) in problem
    assert not content.strip() or content not in problem


def test_a_token_file_that_is_not_there_is_refused(tmp_path):
    (problem,) = machine_problems(config(token_file=tmp_path / "none"))
    assert "cannot be read: No such file or directory" in problem


def test_deterministic_rounds_need_the_number_of_clients():
    settings = config(deterministic=True, min_clients=2)
    assert machine_problems(settings)[0].startswith("--deterministic: needs --min-clients N")
    assert machine_problems(settings, "min_clients") == []
    assert machine_problems(config(deterministic=True, inline="CartPole-v1")) == []


def test_the_address_file_needs_its_folder(tmp_path):
    assert machine_problems(config(address_file=tmp_path / "address")) == []
    (problem,) = machine_problems(config(address_file=tmp_path / "no" / "address"))
    assert problem.startswith("--address-file: the folder")


def test_an_unknown_tracker_is_refused_with_the_known_ones():
    (problem,) = machine_problems(config(track=TrackConfig(tracker="swanlb")))
    assert "'swanlb' is unknown (did you mean swanlab?); known: " in problem


# --- starting from another run's weights ------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Algo:
    """An algorithm of somebody else, without checks of its own."""

    policy_checkpoint_path: Path | None = None
    restore: str = "all"


def warm_start(**changes):
    return machine_problems(config(algo=Algo(**changes)))


@pytest.fixture
def run(tmp_path):
    """A run directory with whole steps 9 and 10 and a torn step 11."""
    for step in (9, 10, 11):
        (tmp_path / str(step)).mkdir()
        (tmp_path / str(step) / "model.safetensors").touch()
    for step in (9, 10):
        (tmp_path / str(step) / "manifest.json").touch()
    return tmp_path


def test_restore_without_a_checkpoint_path_is_refused():
    assert warm_start(restore="model") == [
        "--algo.restore: model needs --algo.policy-checkpoint-path STEP_DIRECTORY"
    ]
    assert warm_start() == []


def test_a_whole_step_directory_can_be_started_from(run):
    assert warm_start(policy_checkpoint_path=run / "10", restore="except-critic") == []


def test_a_run_directory_is_answered_with_its_newest_whole_step(run):
    (problem,) = warm_start(policy_checkpoint_path=run)
    assert problem.endswith(f"is a run, expected one step of it; its newest is {run / '10'}")


def test_a_whole_step_is_what_the_checkpoint_format_says():
    assert MANIFEST == MANIFEST_NAME


def test_a_torn_step_is_no_checkpoint(run):
    (problem,) = warm_start(policy_checkpoint_path=run / "11")
    assert "has no manifest.json, so it is no whole checkpoint" in problem


def test_a_path_that_is_missing_or_a_file_is_refused(run):
    (missing,) = warm_start(policy_checkpoint_path=run / "12")
    assert "does not exist" in missing
    (file,) = warm_start(policy_checkpoint_path=run / "10" / "model.safetensors")
    assert "is a file, expected the directory it lies in" in file
