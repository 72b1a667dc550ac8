"""What belongs to the identity of a run, and how two of them are compared. Nothing is read here."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from algorithms.config import MAY_CHANGE
from algorithms.policies.config import MLPPolicyConfig
from algorithms.ppo.config import PPOConfig
from royale_server.config import Pair, ServerConfig, TrackConfig
from royale_server.config_document import to_document
from royale_server.run.identity import (
    DIRTY_MARK,
    DRIFT_MARK,
    IdentityDriftError,
    accepted_marks,
    build,
    changed_settings,
    differences,
    environment_difference,
    resume_rules,
)
from royale_server.run.identity_record import (
    MAX_ENVIRONMENTS,
    IdentityRecord,
    read_identity,
    write_identity,
)
from royale_server.run.source import UNKNOWN, Source

PAIR = Pair(policy="mlp-policy", policy_variant="default", algo="ppo", algo_variant="default")
VERSIONS = {"python": "3.11.9", "torch": "2.13.0"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def config(**changes):
    settings = {"pair": PAIR, "policy": MLPPolicyConfig(), "algo": PPOConfig(), **changes}
    return ServerConfig(**settings)


def identity(settings=None, *, versions=VERSIONS, device_kind="cpu", sources=()):
    return build(settings or config(), device_kind=device_kind, versions=versions, sources=sources)


def told(old, new):
    return [str(difference) for difference in differences(old, new)]


# --- what belongs to it ---------------------------------------------------------------------------


def test_every_setting_of_policy_and_algorithm_belongs_unless_it_says_otherwise():
    rules = resume_rules(config())
    free = {name for name, rule in rules.items() if rule != "same"}
    of_components = {name for name in free if name.startswith(("policy.", "algo."))}
    assert of_components == {
        "algo.total_timesteps",
        "algo.stop_at_return",
        "algo.stop_window",
        "algo.horizon_frames",
        "algo.policy_checkpoint_path",
        "algo.restore",
    }


def test_of_the_server_only_what_decides_what_is_learned_belongs():
    assert {name for name in identity() if "." not in name} == {
        "seed",
        "torch_threads",
        "deterministic",
        "device_kind",
    }


def test_the_number_of_clients_belongs_to_deterministic_rounds_only():
    assert "min_clients" not in identity()
    assert identity(config(deterministic=True, min_clients=3))["min_clients"] == 3


def test_settings_inside_settings_inherit_what_holds_for_them():
    @dataclass(frozen=True)
    class Inner:
        rate: float = 0.1

    @dataclass(frozen=True)
    class Outer:
        strict: Inner = field(default_factory=Inner)
        free: Inner = field(default_factory=Inner, metadata=MAY_CHANGE)

    rules = resume_rules(config(algo=Outer()))
    assert rules["algo.strict.rate"] == "same"
    assert rules["algo.free.rate"] == "may change"


# --- comparing ------------------------------------------------------------------------------------


def test_a_run_is_the_same_when_only_its_limits_and_its_surroundings_change():
    other = config(
        algo=PPOConfig(total_timesteps=5, horizon_frames=9, stop_at_return=1.0, stop_window=7),
        port=1,
        host="::1",
        save_every=1,
        keep_every=5,
        until_timesteps=10,
        resume=True,
        exp_name="x",
        checkpoint_base_dir=Path("elsewhere"),
        dispatch="dynamic",
        device="cpu",
        track=TrackConfig(project="p"),
        log_level="debug",
    )
    assert told(identity(), identity(other)) == []


def test_every_field_that_differs_is_named_with_both_values():
    other = config(
        policy=MLPPolicyConfig(hidden_sizes=(32,)),
        algo=PPOConfig(gamma=0.95, value_clip=0.2),
        seed=4,
        deterministic=True,
        min_clients=2,
    )
    versions = {"python": "3.11.9", "numpy": "2.0"}
    assert told(identity(), identity(other, versions=versions, device_kind="cuda")) == [
        "policy.hidden_sizes: [64, 64] in the run, [32] now",
        "algo.gamma: 0.99 in the run, 0.95 now",
        "algo.value_clip: none in the run, 0.2 now",
        "seed: 0 in the run, 4 now",
        "deterministic: false in the run, true now",
        "versions.torch: 2.13.0 in the run, absent now",
        "device_kind: cpu in the run, cuda now",
        "min_clients: absent in the run, 2 now",
        "versions.numpy: absent in the run, 2.0 now",
    ]


def test_commits_and_digests_are_shown_short():
    old = identity(sources=[Source(name="royale", commit=COMMIT, changes="ab" * 32)])
    new = identity(sources=[Source(name="royale", commit="f" * 40)])
    assert told(old, new) == [
        "source.royale.commit: 0123456789ab in the run, ffffffffffff now",
        "source.royale.changes: abababababab in the run, none now",
    ]


def test_what_git_could_not_tell_is_no_difference():
    known = identity(sources=[Source(name="royale", commit=COMMIT, changes="ab" * 32)])
    unknown = identity(sources=[Source(name="royale", commit=UNKNOWN, changes=UNKNOWN)])
    assert told(known, unknown) == told(unknown, known) == []


def test_a_checkout_is_not_an_installed_version():
    checkout = identity(sources=[Source(name="royale", commit=COMMIT)])
    assert told(checkout, identity()) == [
        "source.royale.commit: 0123456789ab in the run, absent now",
        "source.royale.changes: none in the run, absent now",
    ]


# --- what may be allowed --------------------------------------------------------------------------


def changes(*, dirty=False, drift=False):
    new = [Source(name="royale", commit=COMMIT, changes="cd" * 32 if dirty else None)]
    settings = config(algo=PPOConfig(gamma=0.95)) if drift else config()
    old = identity(sources=[Source(name="royale", commit=COMMIT)])
    return differences(old, identity(settings, sources=new))


def marks(found, **allowed):
    allowed = {"allow_drift": False, "allow_dirty": False, **allowed}
    accepted = accepted_marks("exp", found, **allowed)
    return {mark: [difference.field for difference in some] for mark, some in accepted.items()}


def test_nothing_changed_needs_no_permission_and_no_mark():
    assert marks([]) == marks([], allow_drift=True, allow_dirty=True) == {}


def test_the_refusal_names_every_difference_and_what_to_do():
    with pytest.raises(IdentityDriftError) as refused:
        marks(changes(dirty=True, drift=True))
    assert str(refused.value).splitlines() == [
        "--resume: 2 things are not as in the run exp, nothing was changed",
        "  algo.gamma: 0.99 in the run, 0.95 now",
        "  source.royale.changes: none in the run, cdcdcdcdcdcd now",
        "start it as it was, or go on with --allow-identity-drift: every later row is then marked "
        "run/identity_drift",
    ]


def test_uncommitted_code_alone_is_answered_with_the_smaller_permission():
    with pytest.raises(IdentityDriftError, match=r"1 thing is not .*[\s\S]*--allow-dirty"):
        marks(changes(dirty=True))
    assert marks(changes(dirty=True), allow_dirty=True) == {DIRTY_MARK: ["source.royale.changes"]}
    assert marks(changes(dirty=True), allow_drift=True) == {DRIFT_MARK: ["source.royale.changes"]}


def test_allowing_uncommitted_code_allows_nothing_else():
    with pytest.raises(IdentityDriftError) as refused:
        marks(changes(dirty=True, drift=True), allow_dirty=True)
    assert [d.field for d in refused.value.differences] == ["algo.gamma"]
    new = identity(sources=[Source(name="royale", commit="f" * 40)])
    other_commit = differences(identity(sources=[Source(name="royale", commit=COMMIT)]), new)
    with pytest.raises(IdentityDriftError, match="commit"):
        marks(other_commit, allow_dirty=True)


def test_both_permissions_give_both_marks():
    assert marks(changes(dirty=True, drift=True), allow_drift=True, allow_dirty=True) == {
        DRIFT_MARK: ["algo.gamma"],
        DIRTY_MARK: ["source.royale.changes"],
    }


# --- environments ---------------------------------------------------------------------------------

CARTPOLE = ("CartPole-v1", "a" * 16)


def test_an_environment_is_compared_with_those_that_have_taken_part():
    assert environment_difference([CARTPOLE], *CARTPOLE) is None
    assert str(environment_difference([CARTPOLE], "CartPole-v1", "b" * 16)) == (
        "environment CartPole-v1: aaaaaaaaaaaa in the run, bbbbbbbbbbbb now"
    )
    assert str(environment_difference([CARTPOLE, ("Acrobot-v1", "")], "Pendulum-v1", "")) == (
        "environment: CartPole-v1, Acrobot-v1 in the run, Pendulum-v1 now"
    )


def test_of_many_known_environments_a_difference_shows_a_few():
    versions = [("A", str(i)) for i in range(6)]
    assert environment_difference(versions, "A", "x").old == "0 or 1 or 2 or 3 or 2 more"
    ids = [(str(i), "") for i in range(5)]
    assert environment_difference(ids, "A", "").old == "0, 1, 2, 3, 1 more"


def test_a_run_that_has_seen_no_environment_has_nothing_to_compare_with():
    assert environment_difference([], *CARTPOLE) is None


# --- what may change ------------------------------------------------------------------------------


def test_settings_outside_the_identity_are_listed_old_and_new():
    old = to_document(config(algo=PPOConfig(total_timesteps=1_000_000), save_every=10))
    new = config(
        algo=PPOConfig(total_timesteps=2_000_000, gamma=0.9),
        save_every=5,
        track=TrackConfig(enabled=True),
        resume=True,
        exp_name="exp",
        seed=9,
        min_clients=2,
    )
    assert [(d.field, d.old, d.new) for d in changed_settings(old, new)] == [
        ("algo.total_timesteps", "1000000", "2000000"),
        ("save_every", "10", "5"),
        ("min_clients", "1", "2"),
        ("track.enabled", "false", "true"),
    ]


# --- the file -------------------------------------------------------------------------------------


def test_the_file_holds_everything_and_replaces_the_old_one(tmp_path):
    path = tmp_path / "identity.json"
    record = IdentityRecord(fields=identity()).with_environment(*CARTPOLE)
    write_identity(path, record)
    found = differences({"algo.gamma": 0.99}, {"algo.gamma": 0.95})
    changed = replace(record.with_change(2, DRIFT_MARK, found), fields={"algo.gamma": 0.95})
    write_identity(path, changed)
    assert read_identity(path) == changed
    assert read_identity(path).marks == {DRIFT_MARK: 1.0}
    assert changed.changes[0].differences == (
        {"field": "algo.gamma", "old": "0.99", "new": "0.95"},
    )
    assert [file.name for file in tmp_path.iterdir()] == ["identity.json"]
    assert read_identity(tmp_path / "none") is None


def test_an_environment_is_noted_once():
    record = IdentityRecord(fields={}).with_environment(*CARTPOLE)
    assert record.with_environment(*CARTPOLE) is record


def test_environments_are_remembered_up_to_a_limit():
    record = IdentityRecord(fields={})
    for number in range(MAX_ENVIRONMENTS):
        assert not record.is_full
        record = record.with_environment("A", str(number))
    assert record.is_full
    assert record.with_environment("A", "one more") is record


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 9}'])
def test_a_file_that_cannot_be_understood_is_refused_with_the_way_out(tmp_path, text):
    path = tmp_path / "identity.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"Restore it, or remove it|use the version of Royale"):
        read_identity(path)
