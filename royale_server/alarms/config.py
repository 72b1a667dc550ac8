"""The settings of the alarms: thresholds, and which alarms are quieter, louder or off.

Holds numbers and texts, decides nothing, imports no NumPy. No number that a run produces depends on
them, so they are no part of what a run is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from royale_client.wire.errors import ConfigError

_LIST: Mapping[str, Any] = {"threshold": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmConfig:
    """Alarms: questions asked of every metrics row. ``royale alarms`` lists them."""

    enabled: bool = True
    """Ask them. Without, a run that has gone wrong goes on."""
    patience_overrides: tuple[str, ...] = field(default=(), metadata=_LIST)
    """Other patience for single alarms, as ``kl_high=10``: rows running before it speaks."""
    severity_overrides: tuple[str, ...] = field(default=(), metadata=_LIST)
    """Other severity for single alarms, as ``kl_high=halt`` or ``clip_pinned=warn``."""
    disabled: tuple[str, ...] = field(default=(), metadata=_LIST)
    """Names of alarms that are not asked."""
    use: tuple[str, ...] = field(default=(), metadata=_LIST)
    """Names of alarms of installed plug-ins to ask as well; those of ``--plugin`` always are."""

    ratio_invariant_multiple: float = 5.0
    """ratio_invariant: multiple of ``ratio_atol`` that a probability ratio may be off 1."""
    ratio_atol: float = 1e-4
    """ratio_invariant: how far from 1 rounding alone may take a ratio: 1e-4 with float32, 2e-2 with
    bfloat16."""
    buffer_fill_frac: float = 0.98
    """buffer_overflow: floor of the bound on how full storage is; the bound is never below 1."""
    elixir_count_exact: float = 0.99
    """elixir_count_inexact: least share of episodes whose counted elixir was exact."""
    seat_low: float = 0.45
    """seat_bias: lower end of the band that the win rate of seat 0 should overlap."""
    seat_high: float = 0.55
    """seat_bias: its upper end."""
    spill_slowdown: float = 2.0
    """vram_spilling: multiple of the run's own best update time."""
    spill_free_mb: float = 128.0
    """vram_spilling: megabytes that the driver should report free."""
    capacity_ratio: float = 1.5
    """capacity_ratio: least ratio of what clients could deliver to what the learner takes."""
    clip_fraction: float = 0.5
    """clip_pinned: share of frames whose ratio leaves the clip range."""
    kl_high: float = 0.05
    """kl_high: nats that the policy may move in one update."""
    kl_dead: float = 1e-5
    """kl_dead: nats below which it does not move at all."""
    explained_variance: float = 0.0
    """ev_negative: least share of the returns' variance that the critic explains."""
    cards_per_match_warn: float = 8.0
    """noop_collapse: least cards a seat plays in a battle."""
    cards_per_match_halt: float = 3.0
    """noop_collapse_severe: the same, beyond which the run is stopped."""
    noop_entropy_floor: float = 0.02
    """noop_entropy_floor: least entropy, in nats, of whether to act."""
    tile_top1_share: float = 0.25
    """tile_spam: share of all plays that go to the one most played tile."""
    card_tile_top10_share: float = 0.5
    """artefact_exploit: share of all plays in the ten most played pairs of card and tile."""
    draw_rate: float = 0.5
    """draw_equilibrium: share of battles that are drawn."""
    at_cap_frac: float = 0.8
    """draw_equilibrium: share of episodes that end at the limit of steps."""
    transitivity_residual: float = 0.10
    """transitivity: share of pairs whose score the rating does not explain."""
    gate_failures: float = 5.0
    """gate_starved: gates failed running."""
    handoff_window: float = 20.0
    """actor_handoff: iterations after the actor begins to move."""
    handoff_kl: float = 0.05
    """actor_handoff: nats that the policy may move in one of them."""
    handoff_clip_fraction: float = 0.3
    """actor_handoff: share of frames whose ratio leaves the clip range."""
    unfreeze_explained_variance: float = 0.3
    """critic_unready: least explained variance when the actor begins to move."""

    discard_share: float = 0.2
    """discards: share of an iteration's frames that are thrown away."""
    workers_gone_share: float = 0.5
    """worker_failures_persistent: share of the clients that are lost and not replaced."""
    clients_lost: float = 5.0
    """client_flapping: clients that left without a goodbye within ten minutes."""
    dispatch_gap_s: float = 15.0
    """queue_starved: seconds between two batches of a collection."""
    writer_wait_s: float = 30.0
    """writer_stalled: seconds for which the disk may keep one thing waiting."""
    tracker_rows: float = 100.0
    """tracker_stalled: rows that may wait for a tracker."""
    overdue_intervals: float = 2.5
    """checkpoint_overdue: multiples of ``--save-every`` since the last checkpoint."""
    disk_free_mb: float = 2048.0
    """disk_low: megabytes that should be free where the run is written, beside room for two more
    checkpoints."""

    def __post_init__(self) -> None:
        problems = [*self._number_problems(), *self._override_problems()]
        if problems:
            raise ConfigError("\n".join(problems))

    def limits(self) -> dict[str, float]:
        """Return the thresholds by name."""
        return {name: float(getattr(self, name)) for name in threshold_names()}

    def patience_of(self) -> dict[str, int]:
        """Return the overridden patience, by alarm."""
        return {name: int(text) for name, text in map(_split, self.patience_overrides)}

    def severity_of(self) -> dict[str, str]:
        """Return the overridden severities, by alarm."""
        return dict(map(_split, self.severity_overrides))

    def named(self) -> dict[str, tuple[str, ...]]:
        """Return the names of alarms that each setting mentions."""
        return {
            "patience_overrides": tuple(_split(text)[0] for text in self.patience_overrides),
            "severity_overrides": tuple(_split(text)[0] for text in self.severity_overrides),
            "disabled": self.disabled,
        }

    def _number_problems(self) -> list[str]:
        return [
            f"{name}: got {getattr(self, name)}, expected a finite number"
            for name in threshold_names()
            if not math.isfinite(getattr(self, name))
        ]

    def _override_problems(self) -> list[str]:
        problems = [
            f"patience_overrides: got {text!r}, expected NAME=ROWS with 1 row or more, as kl_high=5"
            for text in self.patience_overrides
            if not (_split(text)[0] and _split(text)[1].isdecimal() and int(_split(text)[1]))
        ]
        problems += [
            f"severity_overrides: got {text!r}, expected NAME=warn or NAME=halt"
            for text in self.severity_overrides
            if not _split(text)[0] or _split(text)[1] not in ("warn", "halt")
        ]
        named = {**self.named(), "use": self.use}
        return problems + [
            f"{setting}: {name!r} is named twice"
            for setting, names in named.items()
            for name in _repeated(names)
        ]


def threshold_names() -> tuple[str, ...]:
    """Names of the settings that are thresholds."""
    lists = ("enabled",)
    return tuple(
        entry.name
        for entry in dataclasses.fields(AlarmConfig)
        if entry.name not in lists and entry.metadata.get("threshold", True)
    )


def _split(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]
