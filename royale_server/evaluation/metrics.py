"""What rounds of evaluation came to, as metrics of a row and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from royale_server.evaluation.desk import Round
from royale_server.evaluation.episodes import EpisodeRound, EpisodeVerdict
from royale_server.evaluation.round import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a complete round came to."""

    metrics: dict[str, float]
    """By the keys that ``monitoring/declarations.py`` declares."""
    facts: dict[str, str]
    """What was played, for the event."""
    text: str
    """A sentence."""


def report_of(round_: Round | EpisodeRound) -> Report:
    """Report a complete round."""
    if isinstance(round_, EpisodeRound):
        episodes = round_.verdict()
        numbers, facts = _of_episodes(episodes), {"env_id": round_.env_id}
        text = returns_line(round_.version, round_.env_id, episodes)
    else:
        battles = round_.verdict()
        numbers, facts = _of_battles(battles), {"opponent": round_.opponent}
        text = verdict_line(round_.version, round_.opponent, battles)
    known = {} if round_.version is None else {"env/eval_policy_version": round_.version}
    return Report(
        metrics={"env/eval_round": round_.number, **known, **numbers}, facts=facts, text=text
    )


def _of_battles(verdict: Verdict) -> dict[str, float]:
    return {
        "env/eval_battles": verdict.battles,
        "env/eval_win_rate": verdict.win_rate,
        "env/eval_win_rate_low": verdict.low,
        "env/eval_win_rate_high": verdict.high,
        "env/eval_score": verdict.score,
        "env/eval_score_low": verdict.score_low,
        "env/eval_score_high": verdict.score_high,
    }


def _of_episodes(verdict: EpisodeVerdict) -> dict[str, float]:
    return {
        "env/eval_episodes": verdict.episodes,
        "env/eval_return_mean": verdict.return_mean,
        "env/eval_return_low": verdict.return_low,
        "env/eval_return_high": verdict.return_high,
        "env/eval_return_min": verdict.return_min,
        "env/eval_return_max": verdict.return_max,
        "env/eval_length_mean": verdict.length_mean,
    }


def returns_line(version: int | None, env_id: str, verdict: EpisodeVerdict) -> str:
    """Say what a round of episodes came to.

    Args:
        version: Version of the policy.
        env_id: What it played.
        verdict: What it came to.
    """
    v = verdict
    return (
        f"policy version {version} in {env_id}: mean return {v.return_mean:,.2f} "
        f"({v.return_low:,.2f} to {v.return_high:,.2f}) of {v.episodes:,} episodes, "
        f"from {v.return_min:,.2f} to {v.return_max:,.2f}; mean length {v.length_mean:,.1f}"
    )


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
