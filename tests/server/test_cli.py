"""The command: four words, help, refusals, exit codes; what it imports and when."""

import json
import logging
import re
import resource
import subprocess
import sys
import types

import pytest

import royale_server
from checkpoints.errors import CheckpointCorruptError
from royale_client.wire.errors import ConfigError
from royale_server import cli
from royale_server.builtin_components import builtin_registry
from royale_server.cli_flags import flags_of
from royale_server.cli_words import choose
from royale_server.config import ServerConfig
from royale_server.exit_codes import EXIT_CODE_MEANINGS, ExitCode

PPO = ["mlp-policy", "default", "ppo", "default"]
DUMMY = ["dummy-policy", "default", "dummy", "default"]
WORDS = "royale-server mlp-policy default ppo default"


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv("ROYALE_TOKEN", raising=False)


@pytest.fixture
def refused(capsys):
    """A function that runs a command, sees it refused with code 2, and returns its problems."""

    def run(*argv):
        assert cli.main(list(argv)) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return [line.strip() for line in captured.err.splitlines() if line.startswith("  ")]

    return run


@pytest.fixture
def app(monkeypatch):
    """Put a fake in place of the application; logging is put back afterwards."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    fake = types.ModuleType("royale_server.app")
    fake.run = lambda config, **rest: 0
    monkeypatch.setitem(sys.modules, "royale_server.app", fake)
    monkeypatch.setattr(royale_server, "app", fake, raising=False)
    yield fake
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    for package in ("royale_server", "royale_client", "algorithms", "checkpoints"):
        logging.getLogger(package).setLevel(logging.NOTSET)


def raising(error):
    def run(config, **rest):
        raise error

    return run


# --- the four words --------------------------------------------------------------------------


def test_no_words_says_what_is_expected(refused):
    (problem,) = refused()
    assert problem.startswith(
        "expected POLICY VARIANT ALGO VARIANT, got no words; policies: mlp-po"
    )


@pytest.mark.parametrize(
    ("words", "missing", "fitting"),
    [
        (["mlp-policy"], "VARIANT ALGO VARIANT", "variants of mlp-policy: default, mujoco"),
        (["mlp-policy", "default"], "ALGO VARIANT", "algorithms for mlp-policy: ppo"),
        (
            ["mlp-policy", "default", "ppo"],
            "VARIANT",
            "variants of ppo: default, classic, mujoco, arena",
        ),
    ],
)
def test_a_missing_word_is_named_with_what_fits(refused, words, missing, fitting):
    (problem,) = refused(*words, "--seed", "3")
    assert f"got '{' '.join(words)}', missing {missing}; {fitting}" in problem


def test_unknown_words_are_named_all_at_once_with_close_matches(refused):
    problems = refused("mlp-polcy", "default", "ppoo", "x")
    assert "policy 'mlp-polcy' is unknown (did you mean mlp-policy?)" in problems[0]
    assert "algorithm 'ppoo' is unknown (did you mean ppo?)" in problems[1]


def test_unknown_variants_are_named_with_those_of_their_own_uid(refused):
    assert refused("mlp-policy", "defualt", "ppo", "clasic") == [
        "variant 'defualt' of mlp-policy is unknown (did you mean default?); "
        "mlp-policy has: default, mujoco",
        "variant 'clasic' of ppo is unknown (did you mean classic?); "
        "ppo has: default, classic, mujoco, arena",
    ]


def test_a_wrong_pair_is_refused_with_the_pairs_that_fit(refused):
    assert refused("dummy-policy", "default", "ppo", "default") == [
        "dummy-policy and ppo do not fit together; algorithms for dummy-policy: dummy; "
        "policies for ppo: mlp-policy, arena-policy"
    ]


def test_algorithm_before_policy_is_answered_with_the_right_order(refused):
    problems = refused("ppo", "classic", "mlp-policy", "mujoco")
    expected = "the policy comes first; write: royale-server mlp-policy mujoco ppo classic"
    assert problems[-1] == expected


def test_a_fifth_word_is_refused(refused):
    (problem,) = refused(*PPO, "extra")
    assert "got 'extra' after the four words" in problem


@pytest.mark.parametrize(
    "argv",
    [
        "--seed 3 --resume mlp-policy default ppo default",
        "mlp-policy default --seed 3 --resume ppo default",
        "--seed=3 --resume mlp-policy default ppo default",
    ],
)
def test_flags_before_or_between_the_words_are_answered_with_the_order_that_works(refused, argv):
    (problem,) = refused(*argv.split())
    seed = "--seed=3" if "--seed=3" in argv else "--seed 3"
    assert problem == (
        "flags come after the four words POLICY VARIANT ALGO VARIANT; "
        f"write: {WORDS} {seed} --resume"
    )


# --- case H19: seven inputs that people type, each answered with the spelling that works ------


@pytest.mark.parametrize(
    ("argv", "spelling"),
    [
        ([*PPO, "--resume", "True"], "write --resume to switch it on, --no-resume"),
        ([*PPO, "--track", "false"], "--track.no-enabled to switch it off"),
        ([*PPO, "--seed", "none"], "write --seed 0"),
        ([*PPO, "--seed", "None"], "write --seed 0"),
        ([*PPO, "--port", "8e3"], "write --port 8000"),
        ([*PPO, "--clip-coef", "0.1"], "write --algo.clip-coef 0.1"),
        (["--seed", "3", *PPO], f"write: {WORDS} --seed 3"),
    ],
)
def test_h19_a_wrong_spelling_ends_with_code_2_and_the_one_that_works(refused, argv, spelling):
    (problem,) = refused(*argv)
    assert spelling in problem


def test_h19_help_lists_both_forms_of_a_switch(capsys):
    assert cli.main([*PPO, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--resume, --no-resume" in text
    assert "--track.enabled, --track.no-enabled" in text


@pytest.mark.parametrize(
    "flags",
    [
        "--no-resume --no-overwrite --track.no-enabled",
        "--track.enabled --track.tracker swanlab",
        "--exp-name first --resume",
        "--exp-name first --overwrite",
        "--until-timesteps none --algo.target-kl None",
        "--mini-infer-batch-size 16 --feedback-wait-timeout 60",
    ],
)
def test_documented_flags_are_accepted(capsys, flags):
    assert cli.main([*PPO, *flags.split(), "--dry-run"]) == 0


# --- flags -----------------------------------------------------------------------------------


def test_flags_reach_the_settings(capsys):
    flags = [
        "--seed",
        "7",
        "--algo.clip-coef",
        "0.1",
        "--policy.hidden-sizes",
        "8",
        "9",
        "--track.enabled",
        "--checkpoint-base-dir",
        "out",
        "--plugin",
        "json.tool",
    ][:-2]
    assert cli.main([*PPO, *flags, "--dry-run"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seed"] == 7
    assert document["algo"]["clip_coef"] == 0.1
    assert document["policy"]["hidden_sizes"] == [8, 9]
    assert document["track"]["enabled"] is True
    assert document["checkpoint_base_dir"] == "out"


def test_a_variant_is_where_the_settings_start(capsys):
    assert cli.main(["mlp-policy", "mujoco", "ppo", "classic", "--dry-run"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policy"]["normalize_observations"] is True
    assert document["algo"]["total_timesteps"] == 200_000
    assert document["pair"]["algo_variant"] == "classic"


def test_problems_of_policy_algorithm_server_and_machine_are_listed_together(refused):
    flags = (
        "--policy.hidden-sizes 0 --algo.gamma 2 --algo.clip-coef -1 --port -1 --host 0.0.0.0 "
        "--deterministic --seed 1e3"
    )
    found = {problem.partition(":")[0] for problem in refused(*PPO, *flags.split())}
    assert found == {
        "--policy.hidden-sizes",
        "--algo.gamma",
        "--algo.clip-coef",
        "--port",
        "--host",
        "--deterministic",
        "--seed",
    }


def test_a_consequence_of_a_misspelt_flag_is_not_a_second_problem(refused):
    # With --dispatch unread, --max-infer-wait-ms would be said to need --dispatch dynamic.
    problems = refused(*PPO, "--dispatch", "dynamc", "--max-infer-wait-ms", "2")
    assert [problem.partition(":")[0] for problem in problems] == ["--dispatch"]


def test_warm_start_is_checked_at_parse_time_for_the_built_in_algorithm(refused, tmp_path):
    (problem,) = refused(*PPO, "--algo.restore", "model")
    assert "--algo.policy-checkpoint-path" in problem
    path = str(tmp_path / "5")
    (problem,) = refused(*PPO, "--algo.policy-checkpoint-path", path)
    assert problem.startswith(f"--algo.policy-checkpoint-path: {path} does not exist")


def test_a_plugin_brings_a_policy_for_a_built_in_algorithm(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "my_policy.py").write_text(
        "from royale_server.registry import PolicyEntry\n"
        "def register(registry):\n"
        "    registry.add_policy(PolicyEntry(uid='mine', summary='my own', fits=('ppo',),\n"
        "        config='algorithms.policies.config:MLPPolicyConfig',\n"
        "        variants='algorithms.policies.config:MLP_VARIANTS',\n"
        "        implementation='nowhere:Mine'))\n"
    )
    plugin = ["--plugin", str(tmp_path / "my_policy.py")]
    assert cli.main(["mine", "default", "ppo", "default", *plugin, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["plugin"] == [plugin[1]]
    assert cli.main([*plugin, "--help"]) == 0
    assert "mine\n      my own" in capsys.readouterr().out
    del sys.modules["my_policy"]


@pytest.mark.parametrize("words", [PPO, ["mlp-policy", "mujoco", "ppo", "mujoco"], DUMMY])
def test_every_flag_that_hints_know_is_one_that_the_parser_knows(capsys, words):
    chosen = choose(words, builtin_registry())
    settings = ServerConfig(pair=chosen.pair, policy=chosen.policy, algo=chosen.algo)
    known = {"--help"}
    for flag in flags_of(settings):
        known |= {flag.name, flag.off_name} if flag.kind == "switch" else {flag.name}
    assert cli.main([*words, "--help"]) == 0
    # A line of the table: border, space, flags, two or more spaces, meaning.
    cells = re.findall(r"^. (-.*?)(?: {2,}|$)", capsys.readouterr().out, re.MULTILINE)
    assert set(re.findall(r"--[a-z][\w.-]*", " ".join(cells))) == known


def test_every_flag_says_what_it_means():
    chosen = choose(PPO, builtin_registry())
    settings = ServerConfig(pair=chosen.pair, policy=chosen.policy, algo=chosen.algo)
    assert [flag.name for flag in flags_of(settings) if not flag.meaning] == []


def test_the_flags_of_the_server_are_these():
    chosen = choose(PPO, builtin_registry())
    settings = ServerConfig(pair=chosen.pair, policy=None, algo=None)
    names = [flag.name for flag in flags_of(settings)]
    assert names == [
        "--policy",
        "--algo",
        "--seed",
        "--device",
        "--torch-threads",
        "--deterministic",
        "--exp-name",
        "--checkpoint-base-dir",
        "--resume",
        "--overwrite",
        "--allow-identity-drift",
        "--allow-dirty",
        "--save-every",
        "--keep-last",
        "--keep-every",
        "--heatmap-every",
        "--until-timesteps",
        "--exit-when-idle",
        "--host",
        "--port",
        "--unix-socket",
        "--tcp",
        "--address-file",
        "--token-file",
        "--tls-cert",
        "--tls-key",
        "--allow-host",
        "--allow-origin",
        "--max-sessions",
        "--max-slots",
        "--max-message-mib",
        "--max-unread-mib",
        "--max-log-rate",
        "--dispatch",
        "--mini-infer-batch-size",
        "--max-infer-batch-size",
        "--max-infer-wait-ms",
        "--min-clients",
        "--patience",
        "--close-wait",
        "--first-step-timeout",
        "--feedback-wait-timeout",
        "--ping-timeout",
        "--short-inference",
        "--reconnect-grace",
        "--mixed-environments",
        "--on-nonfinite",
        "--inline",
        "--inline-num-envs",
        "--inline-env-kwargs",
        "--selfplay.mix",
        "--selfplay.scripted",
        "--selfplay.max-resident",
        "--selfplay.snapshot-every",
        "--selfplay.pool-size",
        "--alarms.enabled",
        "--alarms.patience-overrides",
        "--alarms.severity-overrides",
        "--alarms.disabled",
        "--alarms.use",
        "--alarms.ratio-invariant-multiple",
        "--alarms.ratio-atol",
        "--alarms.buffer-fill-frac",
        "--alarms.elixir-count-exact",
        "--alarms.seat-low",
        "--alarms.seat-high",
        "--alarms.spill-slowdown",
        "--alarms.spill-free-mb",
        "--alarms.capacity-ratio",
        "--alarms.clip-fraction",
        "--alarms.kl-high",
        "--alarms.kl-dead",
        "--alarms.explained-variance",
        "--alarms.cards-per-match-warn",
        "--alarms.cards-per-match-halt",
        "--alarms.noop-entropy-floor",
        "--alarms.tile-top1-share",
        "--alarms.card-tile-top10-share",
        "--alarms.draw-rate",
        "--alarms.at-cap-frac",
        "--alarms.transitivity-residual",
        "--alarms.gate-failures",
        "--alarms.handoff-window",
        "--alarms.handoff-kl",
        "--alarms.handoff-clip-fraction",
        "--alarms.unfreeze-explained-variance",
        "--alarms.discard-share",
        "--alarms.workers-gone-share",
        "--alarms.clients-lost",
        "--alarms.dispatch-gap-s",
        "--alarms.writer-wait-s",
        "--alarms.tracker-rows",
        "--alarms.overdue-intervals",
        "--alarms.disk-free-mb",
        "--evaluate.against",
        "--evaluate.battles",
        "--evaluate.episodes",
        "--evaluate.actions",
        "--doctor.ram-budget-mb",
        "--doctor.vram-headroom-mb",
        "--doctor.shared-device",
        "--track.enabled",
        "--track.tracker",
        "--track.project",
        "--track.mode",
        "--log-level",
        "--plugin",
        "--dry-run",
    ]


# --- help ------------------------------------------------------------------------------------


def test_help_without_words_names_everything_they_can_be(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for part in (
        "usage: royale-server POLICY VARIANT ALGO VARIANT",
        "variants: default, classic, mujoco, arena",
        "mlp-policy + ppo",
        "dummy-policy + dummy",
        "royale-server dummy-policy default dummy default",
        "exit codes:",
    ):
        assert part in text
    for code in EXIT_CODE_MEANINGS:
        assert re.search(rf"^  {code.value} +\w", text, re.MULTILINE)


def test_help_after_some_words_is_that_of_the_command(capsys):
    assert cli.main(["mlp-policy", "-h"]) == 0
    assert capsys.readouterr().out.startswith("usage: royale-server POLICY VARIANT")


def test_help_after_four_words_lists_the_flags_of_that_pair(capsys):
    assert cli.main([*PPO, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {WORDS}")
    assert "--algo.clip-coef FLOAT" in text


def test_the_version_can_be_asked_for(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("royale-server ")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], 0),
        ([*PPO, "--help"], 0),
        ([*PPO, "--dry-run"], 0),
        ([*PPO, "--port", "8e3"], 2),
        (["mlp-polcy"], 2),
    ],
)
def test_help_and_refusals_import_no_torch_and_take_less_than_a_second(argv, code):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = (
        "import sys\n"
        "from royale_server.cli import main\n"
        f"code = main({argv!r})\n"
        "heavy = {'torch', 'safetensors', 'swanlab', 'gymnasium'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        f"assert code == {code}, code\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time, so that a busy machine does not decide.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_the_module_can_be_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "royale_server", *PPO, "--resume", "yes"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--no-resume" in done.stderr
    assert done.stdout == ""


# --- running, and how it ends ------------------------------------------------------------------


def test_the_application_gets_the_settings_the_entries_and_a_console(app):
    seen = {}
    app.run = lambda config, **rest: seen.update(config=config, **rest) or ExitCode.TERMINATED
    assert cli.main([*PPO, "--seed", "3"]) == 3
    assert seen["config"].seed == 3
    assert seen["policy_entry"].uid == "mlp-policy"
    assert seen["algo_entry"].uid == "ppo"
    assert type(seen["console"]).__name__ == "Console"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("device cuda: torch sees no GPU\nuse --device cpu"), 2),
        (FileExistsError("run exists; add --resume or --overwrite"), 2),
        (FileNotFoundError("nothing to resume"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_refusal_is_a_readable_message_without_a_traceback(app, capsys, error, code):
    app.run = raising(error)
    assert cli.main(PPO) == code
    text = capsys.readouterr().err
    assert "Traceback" not in text
    for line in str(error).splitlines():
        assert re.search(rf"ERROR +{re.escape(line)}$", text, re.MULTILINE)


def test_an_error_raised_on_purpose_is_a_refusal(app, capsys, tmp_path):
    app.run = raising(CheckpointCorruptError(tmp_path, "hash differs"))
    assert cli.main(PPO) == 2
    assert "hash differs" in capsys.readouterr().err


def test_a_client_only_installation_is_told_which_extra_brings_the_server(app, capsys):
    app.run = raising(ModuleNotFoundError("No module named 'torch'", name="torch"))
    assert cli.main(DUMMY) == ExitCode.REFUSED
    text = capsys.readouterr().err
    assert "pip install 'royale-rl[server]'" in text
    assert "Traceback" not in text


def test_an_unexpected_error_leaves_its_traceback_in_the_log_and_code_1(app, capsys):
    app.run = raising(ZeroDivisionError("by nought"))
    assert cli.main(PPO) == 1
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "ZeroDivisionError: by nought" in text


def test_the_log_level_decides_what_is_shown(app, capsys):
    def run(config, **rest):
        logging.getLogger("royale_server.x").info("for the curious")
        logging.getLogger("somebody.else").info("chatter")
        logging.getLogger("algorithms.x").warning("look here")
        return 0

    app.run = run
    assert cli.main([*PPO, "--log-level", "warning"]) == 0
    text = capsys.readouterr().err
    assert "for the curious" not in text
    assert "look here" in text
    assert cli.main(PPO) == 0
    text = capsys.readouterr().err
    assert re.search(r"^\d\d:\d\d:\d\d INFO    for the curious$", text, re.MULTILINE)
    assert "chatter" not in text


def test_a_dry_run_starts_nothing(app, capsys):
    app.run = raising(AssertionError("started"))
    assert cli.main([*DUMMY, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["pair"]["policy"] == "dummy-policy"


def test_a_checkpoint_to_play_against_that_is_none_is_refused_before_anything_starts(refused):
    (problem,) = refused(*PPO, "--evaluate.against", "heuristic", "runs/nothing")
    assert problem.startswith("--evaluate.against: runs/nothing does not exist")
