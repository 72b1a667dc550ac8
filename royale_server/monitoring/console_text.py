"""What the console says, as text. Pure: values in, lines out; writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from royale_server.resume_command import resume_command

MOST_NAMED = 6
"""Groups named in one «Infer queue» line; further ones are counted."""

HEADLINES = ("loss", "entropy", "kl", "explained_variance", "learning_rate")
"""Learner keys that end in one of these are shown; all others are in ``metrics.jsonl``."""

_DISCARDED = "server/discarded_"
_NOT_REASONS = {"frames"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """A request that the inference queue is waiting for."""

    client: str
    group: int
    is_first: bool
    """Whether the group has not sent anything yet."""
    for_s: float
    """Seconds since its last answer, or since its welcome."""


def start_lines(
    *,
    pair: str,
    version: str,
    run_directory: Path,
    attempt: int,
    seed: int,
    device: str,
    dispatch: str,
) -> list[str]:
    """What was asked for, before anything listens."""
    return [
        f"royale-server {version}: {pair}",
        f"  run directory: {run_directory} (attempt {attempt})",
        f"  seed {seed}, device {device}, dispatch {dispatch}",
    ]


def listening_lines(urls: Sequence[str], clients_wanted: int) -> list[str]:
    """Where clients connect, and how many are waited for."""
    return [
        f"listening on {', '.join(urls)}; waiting for {_counted(clients_wanted, 'client')}",
        f"  connect with: royale-env-client ENV --server-url {urls[0]}",
    ]


def server_url(host: str, port: int, *, is_tls: bool = False) -> str:
    """Return the URL clients use; an address that means «all» is left for the reader to fill in."""
    scheme = "wss" if is_tls else "ws"
    if host in ("0.0.0.0", "::"):
        return f"{scheme}://THIS-MACHINE:{port}"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def built_line(device: str, frames_wanted: int | None) -> str:
    """The model is there."""
    if frames_wanted is None:
        return f"model ready on {device}"
    return f"model ready on {device}; {frames_wanted:,} frames per iteration"


def joined_line(name: str, env_id: str, slots: int, address: str) -> str:
    """A client was welcomed."""
    return f"client {name} joined from {address}: {_counted(slots, 'slot')} of {env_id}"


def left_line(name: str, why: str) -> str:
    """A client is gone."""
    return f"client {name} left: {why}"


def waiting_line(missing: int) -> str:
    """Fewer clients than ``--min-clients``."""
    return f"waiting for {_counted(missing, 'more client')}"


def all_gone_line(exit_when_idle: float | None) -> str:
    """Nobody is connected any more."""
    if exit_when_idle is None:
        return "all clients are gone; waiting for new ones (Ctrl-C ends with a checkpoint)"
    return f"all clients are gone; ending in {exit_when_idle:g} s unless one comes"


def queue_waiting_line(waited_s: float, owed: Sequence[Owed], missing_clients: int) -> str:
    """Nothing could be inferred for a while: who owes what, and since when."""
    reasons = [_owed_text(item) for item in owed[:MOST_NAMED]]
    if len(owed) > MOST_NAMED:
        reasons.append(f"and {len(owed) - MOST_NAMED} more groups")
    if missing_clients:
        reasons.append(f"{_counted(missing_clients, 'more client')} must join (--min-clients)")
    return f"Infer queue has been waiting for {seconds(waited_s)}: {'; '.join(reasons)}"


def _owed_text(owed: Owed) -> str:
    what = "its first observations" if owed.is_first else "the outcome of its last actions"
    return f"client {owed.client} group {owed.group} owes {what} since {seconds(owed.for_s)}"


def collected_line(frames: int, collect_s: float) -> str:
    """A collection ended; silence follows while the learner works."""
    rate = f" ({frames / collect_s:,.0f} env steps/s)" if collect_s > 0 else ""
    return f"collected {frames:,} frames in {seconds(collect_s)}{rate}; updating"


def epoch_line(epoch: int, epochs: int, learning_s: float, metrics: Mapping[str, float]) -> str:
    """One pass of a learn step."""
    shown = _headlines(metrics)
    numbers = f": {shown}" if shown else ""
    return f"  epoch {epoch}/{epochs}, {seconds(learning_s)} in{numbers}"


def iteration_lines(row: Mapping[str, float], skipped: int = 0) -> list[str]:
    """The short block of one iteration.

    Args:
        row: The row of ``metrics.jsonl``.
        skipped: Iterations since the last block that was shown.
    """
    lines = [
        f"iteration {row['run/iteration']:,}: step {row['run/step']:,}, "
        f"env steps {row['run/env_steps']:,}, policy version {row['run/policy_version']:,}",
        f"  {_return_text(row)}",
        f"  {row['throughput/frames_per_s']:,.0f} frames/s; "
        f"collect {seconds(row['time/collection'])}, update {seconds(row['time/update'])}, "
        f"residual {seconds(row['time/residual'])}",
        f"  {_wait_text(row)}",
        f"  {_headlines(row)}",
        f"  {_discard_text(row)}; {_counted(int(row['server/clients']), 'client')}",
    ]
    if row["server/conservation_error"]:
        lines.append(
            f"  frames are not conserved: {row['server/conservation_error']:,} unaccounted for"
        )
    if skipped:
        lines.append(f"  {_counted(skipped, 'iteration')} before it only in metrics.jsonl")
    return [line for line in lines if line.strip()]


def _wait_text(row: Mapping[str, float]) -> str:
    """Who waits for whom: both shares of the same time, side by side."""
    learner = f"the learner waited {row['throughput/learner_wait_frac']:.0%} for frames"
    if "client/wait_frac" not in row:
        return f"{learner}, no client is there"
    return f"{learner}, clients {row['client/wait_frac']:.0%} for actions"


def return_text(row: Mapping[str, float]) -> str | None:
    """The mean return of the last episodes, or of this iteration's, or None before the first."""
    if "env/return_mean_100" in row:
        episodes = min(100, int(row.get("env/episodes_total", 100)))
        what = "the last episode" if episodes == 1 else f"the last {episodes} episodes"
        return f"mean return of {what} {number(row['env/return_mean_100'])}"
    if "env/return_mean" in row:
        return f"mean return {number(row['env/return_mean'])}"
    return None


def _return_text(row: Mapping[str, float]) -> str:
    episodes = int(row.get("env/episodes", 0))
    if not episodes:
        return f"{return_text(row) or 'no episode has ended yet'}; none ended now"
    span = f"{number(row['env/return_min'])} to {number(row['env/return_max'])}"
    length = number(row["env/length_mean"])
    ended = f"{_counted(episodes, 'episode')} ended, return {span}, mean length {length}"
    return f"{return_text(row)}; {ended}"


def _discard_text(row: Mapping[str, float]) -> str:
    reasons = {
        key.removeprefix(_DISCARDED): int(count)
        for key, count in row.items()
        if key.startswith(_DISCARDED) and key.removeprefix(_DISCARDED) not in _NOT_REASONS
    }
    if row.get("server/no_state_frames"):
        reasons["no_state"] = int(row["server/no_state_frames"])
    named = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items() if count)
    total = f"discarded {int(row['server/discarded_frames']):,} frames so far"
    return f"{total} ({named})" if named else total


def _headlines(metrics: Mapping[str, float]) -> str:
    shown = {
        key.rpartition("/")[2]: value for key, value in metrics.items() if key.endswith(HEADLINES)
    }
    return ", ".join(f"{name} {number(value)}" for name, value in shown.items())


def stopping_line(message: str, *, learning: bool) -> str:
    """A stop was asked for."""
    if not learning:
        return f"stopping: {message}"
    return (
        f"stopping: {message}; waiting up to 30 s for the learn step "
        "(ask again to give it up, a third time to leave at once)"
    )


def saved_line(step: int, path: Path) -> str:
    """A checkpoint is on disk."""
    return f"saved the checkpoint of step {step:,}: {path}"


def ended_lines(
    message: str,
    *,
    code: int,
    step: int,
    saved_step: int | None,
    run_directory: Path | None,
    last_return: str | None,
    is_finished: bool,
    arguments: Sequence[str],
) -> list[str]:
    """How the run ended, and the command line that goes on.

    Args:
        message: Why it ended.
        code: The exit code.
        step: Frames learnt from.
        saved_step: Step of the newest checkpoint, or None; beyond ``step`` if it holds frames that
            are not yet learnt from.
        run_directory: Where the run is.
        last_return: The mean return in words, or None.
        is_finished: Whether it reached its limit, so that resuming needs a new one.
        arguments: What the server was started with.
    """
    lines = [f"ended: {message} (exit code {code})"]
    lines += [f"  {last_return}"] if last_return else []
    if saved_step is None:
        lines.append("  nothing was saved: there is no checkpoint to continue from")
    elif saved_step >= step:
        lines.append(f"  checkpoint: step {saved_step:,}")
    else:
        lines.append(f"  checkpoint: step {saved_step:,}; what came after it is lost")
    if run_directory is not None:
        lines.append(f"  run directory: {run_directory}")
        if saved_step is not None:
            command = resume_command(
                arguments,
                exp_name=run_directory.name,
                until_timesteps=2 * saved_step if is_finished else None,
            )
            lines.append(f"  {'train on' if is_finished else 'continue'} with: {command}")
    return lines


def seconds(duration_s: float) -> str:
    """Show a duration with about three digits."""
    decimals = 2 if duration_s < 10 else 1 if duration_s < 100 else 0
    return f"{duration_s:,.{decimals}f} s"


def number(value: float) -> str:
    """Show a number with about four digits."""
    return f"{value:,.1f}" if 100 <= abs(value) < 1e7 else f"{value:.4g}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
