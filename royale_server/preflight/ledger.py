"""The memory a run will take on the server's machine, added up from what was measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from royale_server.preflight.facts import ClientFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Bytes by what they are for."""

    parts: dict[str, int]
    growth: int
    """Of them, what is not taken yet."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.parts.values())


def ledger(facts: ClientFacts) -> Ledger | None:
    """Add up what the run takes; None where nobody knows what the process takes.

    Storage counts as far as it is filled: the frames of an iteration, and those of the last batch.
    Slots are those of the first client times the clients that are waited for.
    """
    model = facts.model
    if model is None or model.process_bytes is None:
        return None
    learning = 0 if model.rehearsal is None else model.rehearsal.host_bytes
    if model.device == "cpu" and model.rehearsal is not None:
        learning += model.rehearsal.held_bytes
    environment = facts.environment
    slots = 0 if environment is None else environment.num_slots * facts.num_clients
    filled = min(model.storage_frames, model.frames_wanted + slots)
    storage = model.storage_bytes * filled // model.storage_frames
    to_come = {"storage": storage, "slots": slots * model.slot_bytes}
    return Ledger(
        parts={"process": model.process_bytes, "learning": learning, **to_come},
        growth=learning + sum(to_come.values()),
    )
