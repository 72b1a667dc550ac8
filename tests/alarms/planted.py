"""Rows with and without a fault, for every alarm: what it fires on, and what it is silent on.

Numbers lie close to the thresholds, so that a threshold that moved or a sign that turned is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Planted:
    """Two sequences of rows."""

    what: str
    """The fault, in words."""
    bad: Sequence[Row]
    """Repeated for as long as the patience asks; the last one goes on."""
    good: Sequence[Row]


def _one(what: str, key: str, bad: float, good: float) -> Planted:
    return Planted(what, [{key: bad}], [{key: good}])


def _rising(what: str, key: str) -> Planted:
    """A counter that rises in every row, and one that stands still."""
    return Planted(what, _rises(key), [{key: 0, "run/attempt": 1}])


def _rises(key: str) -> list[Row]:
    return [{key: n, "run/attempt": 1} for n in range(1, 60)]


PLANTED: dict[str, Planted] = {
    "illegal_actions": _one(
        "one of 10,000 actions is refused", "env/illegal_action_rate", 1e-4, 0.0
    ),
    "ratio_invariant": _one("a ratio is off by 0.0006", "ppo/ratio_max_abs_dev", 6e-4, 5e-4),
    "nonfinite": _one("a gradient step is skipped", "health/nan_guard_trips", 1, 0),
    "buffer_overflow": _one("65 frames in 64 cells", "health/buffer_fill_frac", 65 / 64, 1.0),
    "elixir_count_inexact": _one(
        "2 % of the counts are off", "env/elixir_count_exact_frac", 0.98, 0.99
    ),
    "seat_bias": Planted(
        "seat 0 wins 62 %",
        [{"env/win_rate_by_seat_ci95_lo": 0.56, "env/win_rate_by_seat_ci95_hi": 0.68}],
        [{"env/win_rate_by_seat_ci95_lo": 0.55, "env/win_rate_by_seat_ci95_hi": 0.67}],
    ),
    "worker_failures": _rising("a client is lost", "health/worker_restarts"),
    "worker_failures_persistent": Planted(
        "a client is lost in every iteration, and five of nine are away",
        [{**row, "health/workers_gone_frac": 5 / 9} for row in _rises("health/worker_restarts")],
        [{**row, "health/workers_gone_frac": 0.5} for row in _rises("health/worker_restarts")],
    ),
    "vram_spilling": Planted(
        "updates take 9 s in place of 4 while 100 MB are free",
        [
            {"time/update": 4.0, "health/vram_driver_free_mb": 100.0},
            {"time/update": 9.0, "health/vram_driver_free_mb": 100.0},
        ],
        [
            {"time/update": 4.0, "health/vram_driver_free_mb": 100.0},
            {"time/update": 7.9, "health/vram_driver_free_mb": 100.0},
            {"time/update": 9.0, "health/vram_driver_free_mb": 200.0},
        ],
    ),
    "capacity_ratio": _one(
        "clients deliver 1.4 times what is learnt", "throughput/rollout_capacity_ratio", 1.4, 1.5
    ),
    "clip_pinned": _one("51 % of the frames are clipped", "ppo/clip_fraction", 0.51, 0.5),
    "kl_high": _one("the policy moves 0.051 nats", "ppo/kl", 0.051, 0.05),
    "kl_dead": _one("the policy moves 9e-6 nats", "ppo/kl", 9e-6, 1e-5),
    "ev_negative": _one("the critic is worse than a constant", "ppo/explained_variance", -0.01, 0),
    "noop_collapse": _one("7.9 cards a battle", "policy/cards_per_match", 7.9, 8.0),
    "noop_collapse_severe": _one("2.9 cards a battle", "policy/cards_per_match", 2.9, 3.0),
    "noop_entropy_floor": _one("0.019 nats", "ppo/noop_entropy", 0.019, 0.02),
    "tile_spam": _one("26 % of the plays on one tile", "policy/tile_top1_share", 0.26, 0.25),
    "artefact_exploit": _one(
        "51 % of the plays in ten pairs", "policy/card_tile_top10_share", 0.51, 0.5
    ),
    "draw_equilibrium": Planted(
        "51 % drawn, 81 % at the limit",
        [{"env/draw_rate": 0.51, "env/episode_steps_at_cap_frac": 0.81}],
        [
            {"env/draw_rate": 0.51, "env/episode_steps_at_cap_frac": 0.8},
            {"env/draw_rate": 0.5, "env/episode_steps_at_cap_frac": 0.81},
        ],
    ),
    "reward_clipped": _one("one of 1,000 rewards is cut", "ppo/reward_clip_frac", 1e-3, 0.0),
    "shaping_dominates": Planted(
        "shaping adds up to 1.1, the goal to 1",
        [{"env/reward_shaping_abs": 1.1, "env/reward_terminal_abs": 1.0}],
        [{"env/reward_shaping_abs": 1.0, "env/reward_terminal_abs": 1.0}],
    ),
    "transitivity": _one(
        "11 % of the pairs are not explained", "ladder/transitivity_residual", 0.11, 0.1
    ),
    "gate_starved": _one("five gates failed", "ladder/consecutive_gate_failures", 5, 4),
    "actor_handoff": Planted(
        "0.06 nats in the 20th iteration after the freeze",
        [{"ppo/kl": 0.06, "ppo/clip_fraction": 0.2, "ppo/iterations_since_unfreeze": 20}],
        [
            {"ppo/kl": 0.06, "ppo/clip_fraction": 0.2, "ppo/iterations_since_unfreeze": 21},
            {"ppo/kl": 0.05, "ppo/clip_fraction": 0.3, "ppo/iterations_since_unfreeze": 0},
        ],
    ),
    "critic_unready": _one("0.29 of the variance", "ppo/ev_at_unfreeze", 0.29, 0.3),
    "frames_not_conserved": _one("a frame is missing", "server/conservation_error", -1, 0),
    "impossible_discards": Planted(
        "a stale frame",
        [{"server/discarded_stale": 1, "server/discarded_buffer_full": 0}],
        [{"server/discarded_stale": 0, "server/discarded_buffer_full": 0}],
    ),
    "discards": _one("21 % of the frames", "server/discard_frac", 0.21, 0.2),
    "invalid_frames": _rising("NaN arrives", "server/nonfinite_frames"),
    "nonfinite_metric": Planted(
        "a number of the row is NaN", [{"ppo/kl": None, "nonfinite": {"ppo/kl": "nan"}}], [{}]
    ),
    "clients_missing": _one("one client too few", "server/clients_missing", 1, 0),
    "client_flapping": _one("five clients lost", "sample/clients_lost", 5, 4),
    "straggler": _one("a group is not waited for", "server/stragglers", 1, 0),
    "queue_starved": _one("16 s without a batch", "server/dispatch_gap_max", 16.0, 15.0),
    "stalled": Planted(
        "nothing for 121 s",
        [{"sample/no_progress_s": 121.0, "sample/stall_bound_s": 120.0}],
        [{"sample/no_progress_s": 120.0, "sample/stall_bound_s": 120.0}],
    ),
    "writer_stalled": _one("31 s at one thing", "sample/writer_wait_s", 31.0, 30.0),
    "writer_refused": _one("a line is refused", "sample/writer_unwritten", 1, 0),
    "lines_lost": _rising("an event is given up", "sample/writer_dropped"),
    "tracker_failing": _rising("a tracker misses a row", "sample/tracker_lost"),
    "tracker_stalled": _one("101 rows wait", "sample/tracker_queued", 101, 100),
    "checkpoint_overdue": _one(
        "26 iterations with --save-every 10", "health/iterations_since_checkpoint", 26, 25
    ),
    "disk_low": _one("2,047 MB to spare", "disk/spare_mb", 2047.0, 2048.0),
}
"""By alarm."""
