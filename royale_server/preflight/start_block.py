"""The labelled block of a start: what the run is, once its first client has come. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from royale_client.wire.probes import LAYOUT, LEGALITY, WAITING
from royale_server.cli_flags import Settings
from royale_server.preflight.facts import MIB, ClientFacts, EnvironmentFacts
from royale_server.preflight.ledger import ledger

_WIDTH = 12


def start_block(facts: ClientFacts, algo: Settings, run_id: str) -> list[str]:
    """Return one line per label.

    Args:
        facts: Of the first client and the model.
        algo: Settings of the algorithm; what it has not is left out.
        run_id: Identity of the run.
    """
    lines = [*_environment(facts.environment), *_model(facts), *_geometry(facts, algo)]
    return [f"  {label:{_WIDTH}} {text}" for label, text in [*lines, ("run id", run_id)]]


def _environment(environment: EnvironmentFacts | None) -> Iterator[tuple[str, str]]:
    if environment is None:
        return
    build = environment.env_digest[:12] or "unknown"
    yield "environment", f"{environment.env_id}, build {build}, {environment.num_slots} slots"
    answers = environment.answers
    if not answers:
        masks = "taken on trust" if environment.has_masks else "none"
        yield "masks", masks
        return
    if (legality := answers.get(LEGALITY)) is not None and legality.masks is not None:
        states, actions = legality.masks.shape
        yield "masks", f"{actions:,} actions tried in {states:,} states, all as the masks say"
    if (waiting := answers.get(WAITING)) is not None:
        yield "no-op", f"legal in all of {len(waiting.states):,} sampled states"
    if (layout := answers.get(LAYOUT)) is not None and layout.layout is not None:
        yield "actions", f"{len(layout.layout):,} by {', '.join(layout.columns)}, as the policy's"


def _model(facts: ClientFacts) -> Iterator[tuple[str, str]]:
    model = facts.model
    if model is None:
        return
    yield "model", f"{model.parameters:,} parameters on {model.device}"
    book = ledger(facts)
    if book is not None:
        parts = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in book.parts.items())
        budget = "unset" if facts.ram_budget_mb is None else f"{facts.ram_budget_mb:,} MB"
        free = "" if model.available_bytes is None else f"; {model.available_bytes / MIB:,.0f} free"
        yield "memory", f"{book.total / MIB:,.0f} MB ({parts}), budget {budget}{free}"
    yield (
        "storage",
        f"{model.storage_frames:,} frames of {model.storage_bytes // model.storage_frames:,} "
        f"bytes; a slot takes {model.slot_bytes:,}",
    )
    rehearsal = model.rehearsal
    if rehearsal is None or rehearsal.failure is not None:
        return
    step = f"{rehearsal.frames:,} frames forward and backward in {rehearsal.duration_s:.2f} s"
    if rehearsal.device_peak_bytes is not None and rehearsal.device_free_bytes is not None:
        step += (
            f", peak {rehearsal.device_peak_bytes / MIB:,.0f} MB of "
            f"{rehearsal.device_free_bytes / MIB:,.0f} free"
        )
    yield "minibatch", step
    if rehearsal.ratio_deviation is not None:
        yield (
            "ratio",
            f"off by {rehearsal.ratio_deviation:.2g}, tolerance {model.ratio_tolerance:g}",
        )


def _geometry(facts: ClientFacts, algo: Settings) -> Iterator[tuple[str, str]]:
    frames = getattr(algo, "frames_per_iteration", None)
    if frames is not None:
        text = f"{frames:,} frames an iteration"
        if (epochs := getattr(algo, "num_epochs", None)) is not None and facts.minibatch:
            text += f", {epochs} passes in minibatches of {facts.minibatch.size:,}"
        yield "geometry", text
    gamma, gae_lambda = getattr(algo, "gamma", None), getattr(algo, "gae_lambda", None)
    if gamma is not None and gae_lambda is not None:
        yield (
            "credit",
            f"rewards {horizon(gamma)} ahead count, advantages look {horizon(gamma * gae_lambda)} "
            "ahead",
        )


def horizon(factor: float) -> str:
    """Say how many frames a geometric weight reaches: the sum of its powers."""
    return "without end" if factor >= 1.0 else f"{1.0 / (1.0 - factor):,.0f} frames"
