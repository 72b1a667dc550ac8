"""The command printed at the end of a run."""

from __future__ import annotations

from royale_server.resume_command import resume_command

PAIR = ["mlp-policy", "default", "ppo", "classic"]


def test_settings_are_kept_and_how_the_run_began_is_not():
    arguments = [*PAIR, "--overwrite", "--exp-name", "old", "--algo.gamma", "0.9", "--seed=3"]
    assert resume_command(arguments, exp_name="old") == (
        "royale-server mlp-policy default ppo classic --algo.gamma 0.9 --seed=3 "
        "--exp-name old --resume"
    )


def test_a_warm_start_and_the_address_file_are_dropped_in_either_spelling():
    warm = ["--algo.policy-checkpoint-path=runs/x/8", "--algo.restore", "model"]
    arguments = [*PAIR, *warm, "--address-file", "a", "--port", "0"]
    assert resume_command(arguments, exp_name="n") == (
        "royale-server mlp-policy default ppo classic --port 0 --exp-name n --resume"
    )


def test_what_was_allowed_once_is_remembered_by_the_run_and_not_repeated():
    arguments = [*PAIR, "--resume", "--allow-identity-drift", "--allow_dirty", "--no-allow-dirty"]
    assert resume_command(arguments, exp_name="n") == (
        "royale-server mlp-policy default ppo classic --exp-name n --resume"
    )


def test_a_limit_is_kept_for_an_interrupted_run_and_replaced_for_a_finished_one():
    arguments = [*PAIR, "--until-timesteps", "500"]
    assert "--until-timesteps 500" in resume_command(arguments, exp_name="n")
    finished = resume_command(arguments, exp_name="n", until_timesteps=900)
    assert finished.count("--until-timesteps") == 1
    assert finished.endswith("--until-timesteps 900")


def test_words_that_a_shell_would_split_are_quoted():
    command = resume_command([*PAIR, "--inline-env-kwargs", '{"g": 5}'], exp_name="n")
    assert "'{\"g\": 5}'" in command


def test_what_looks_like_a_secret_is_not_repeated():
    """The command is shown on terminals, and stands in logs and bundles."""
    arguments = [*PAIR, "--api-key", "5ecret", "--x.password=5ecret", "--token-file", "here"]
    command = resume_command([*arguments, "--url", "https://me:5ecret@host/"], exp_name="n")
    assert "5ecret" not in command
    assert "--token-file here" in command
