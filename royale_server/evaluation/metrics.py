"""What a round of evaluation came to, as metrics of a row and as a sentence."""

from __future__ import annotations

from royale_server.evaluation.round import Verdict


def evaluation_metrics(number: int, version: int | None, verdict: Verdict) -> dict[str, float]:
    """Return the numbers of a round, by the keys that ``monitoring/declarations.py`` declares.

    Args:
        number: Which round of the attempt.
        version: The policy version that played it; None is left out.
        verdict: What it came to.
    """
    known = {} if version is None else {"env/eval_policy_version": version}
    return {
        "env/eval_round": number,
        **known,
        "env/eval_battles": verdict.battles,
        "env/eval_win_rate": verdict.win_rate,
        "env/eval_win_rate_low": verdict.low,
        "env/eval_win_rate_high": verdict.high,
        "env/eval_score": verdict.score,
        "env/eval_score_low": verdict.score_low,
        "env/eval_score_high": verdict.score_high,
    }


def verdict_line(player: int | str | None, opponent: str, verdict: Verdict) -> str:
    """Say what a round came to.

    Args:
        player: Name of the player, or the version of the policy.
        opponent: Whom it played.
        verdict: What it came to.
    """
    v = verdict
    name = player if isinstance(player, str) else f"policy version {player}"
    return (
        f"{name} against {opponent}: won {v.win_rate:.1%} ({v.low:.1%} to {v.high:.1%}) of "
        f"{v.battles:,} battles, drawn {v.draws / v.battles:.1%}, lost {v.losses / v.battles:.1%}; "
        f"score {v.score:.3f} ({v.score_low:.3f} to {v.score_high:.3f})"
    )
