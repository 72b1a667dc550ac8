"""Facts of a run that may start, to be changed one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from royale_client.wire.probes import LAYOUT, LEGALITY, WAITING, ProbeAnswer
from royale_server.preflight.facts import (
    MIB,
    ClientFacts,
    EnvironmentFacts,
    MinibatchSetting,
    ModelFacts,
    RehearsalFacts,
    StartFacts,
)

PARTS = np.array([[-1, -1], [0, 0], [0, 1], [1, 0], [1, 1]])
"""Action 0 waits, the others are two slots times two tiles."""


def start_facts(**changes: Any) -> StartFacts:
    facts: dict[str, Any] = {
        "address": ("127.0.0.1", 8000),
        "disk_folder": Path("runs"),
        "disk_free_bytes": 100 * MIB,
        "checkpoint_bytes": 10 * MIB,
        "ram_budget_mb": 6500,
        "open_files": 4096,
        "max_sessions": 1024,
        "total_frames": 1000,
        "schedule_frames": 1000,
    }
    return StartFacts(**{**facts, **changes})


def answers(**changes: ProbeAnswer) -> dict[str, ProbeAnswer]:
    states = ("seat 0, full elixir", "seat 1, no elixir")
    legal = np.array([[True] * 5, [True] + [False] * 4])
    found = {
        LAYOUT: ProbeAnswer(columns=("slot", "tile"), layout=PARTS),
        WAITING: ProbeAnswer(states=states, masks=legal),
        LEGALITY: ProbeAnswer(states=states, masks=legal, verdicts=legal.copy()),
    }
    return {**found, **changes}


def environment(**changes: Any) -> EnvironmentFacts:
    facts: dict[str, Any] = {
        "client": "lab",
        "env_id": "duel",
        "env_digest": "a" * 16,
        "num_slots": 64,
        "has_masks": True,
        "answers_probes": True,
        "answers": answers(),
    }
    return EnvironmentFacts(**{**facts, **changes})


def rehearsal(**changes: Any) -> RehearsalFacts:
    facts: dict[str, Any] = {
        "frames": 512,
        "ratio_deviation": 1e-7,
        "held_bytes": 100 * MIB,
        "device_free_bytes": 4000 * MIB,
        "device_peak_bytes": 1000 * MIB,
        "host_bytes": 50 * MIB,
    }
    return RehearsalFacts(**{**facts, **changes})


def model(**changes: Any) -> ModelFacts:
    facts: dict[str, Any] = {
        "device": "cuda:0",
        "parameters": 1000,
        "storage_bytes": 60 * MIB,
        "storage_frames": 1024,
        "frames_wanted": 960,
        "slot_bytes": MIB // 64,
        "process_bytes": 400 * MIB,
        "available_bytes": 8000 * MIB,
        "checkpoint_bytes": 10 * MIB,
        "ratio_tolerance": 1e-4,
        "rehearsal": rehearsal(),
        "layout": PARTS,
    }
    return ModelFacts(**{**facts, **changes})


def client_facts(**changes: Any) -> ClientFacts:
    facts: dict[str, Any] = {
        "model": model(),
        "environment": environment(),
        "ram_budget_mb": 6500,
        "vram_headroom_mb": 256,
        "disk_folder": Path("runs"),
        "disk_free_bytes": 100 * MIB,
        "minibatch": MinibatchSetting(size=512, batch=4096, is_only_memory=True),
    }
    return ClientFacts(**{**facts, **changes})
