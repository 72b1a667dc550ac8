"""What clients play in: scheduler, engine, seats and episodes, there once the engine is built.

The hub and its parts share it, because the first clients come before there is an engine: their
spaces are what it is built for. Hands the model thread jobs that nobody waits for; decides nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from algorithms.noise import slot_key
from royale_server.config import ServerConfig
from royale_server.endpoint.continuity import noise_slots
from royale_server.endpoint.episodes import EpisodeBook
from royale_server.endpoint.listener import Listener
from royale_server.endpoint.seating import Seating
from royale_server.model.engine import Engine
from royale_server.model.worker import ModelWorker
from royale_server.saved_run import Sessions
from royale_server.scheduler import Member, Scheduler


class RunCore:
    """The run behind the clients.

    Args:
        config: Settings of the server.
        model: Runs the engine's jobs.
        listener: The run.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        model: ModelWorker,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._model = model
        self._listener = listener
        self._clock = clock
        self.engine_or_none: Engine | None = None
        """The engine; None before `attach`. Only jobs are made of it outside the model thread."""
        self.scheduler_or_none: Scheduler | None = None
        """The scheduler; None before `attach`."""
        self.seating_or_none: Seating | None = None
        """Who plays which seat; None before `attach`."""
        self.episodes = EpisodeBook()
        """Which policy versions played the running episodes."""
        self.next_episode: Counter[str] = Counter()
        """By name of a client that is gone, an episode ordinal that none of its slots reached."""
        self.infer_s = math.inf
        """What the last batch took to infer, in seconds."""
        self.is_stopped = False
        """Nothing is scheduled any more."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler."""
        assert self.scheduler_or_none is not None, "the engine is not built yet"
        return self.scheduler_or_none

    @property
    def seating(self) -> Seating:
        """Who plays which seat."""
        assert self.seating_or_none is not None, "the engine is not built yet"
        return self.seating_or_none

    def attach(self, engine: Engine, scheduler: Scheduler, sessions: Sessions | None) -> None:
        """Begin: the engine is built.

        Args:
            engine: The engine.
            scheduler: The scheduler, fresh.
            sessions: The clients of the checkpoint that the run is resumed from.
        """
        self.engine_or_none = engine
        self.scheduler_or_none = scheduler
        self.seating_or_none = Seating(
            self._config,
            engine,
            self.do,
            self._listener.event,
            evaluated=self._listener.evaluated,
            saved=None if sessions is None else (sessions.seating, sessions.scheduler.seats),
        )

    def expect(self, members: list[Member], sessions: Sessions) -> None:
        """Keep the slots of these clients of a checkpoint until they are back."""
        self.episodes.load_versions(sessions.versions)
        self.add_slots(noise_slots(members, len(sessions.scheduler.steps)))
        self.seating.expect(members)

    def next_episodes(self) -> dict[str, int]:
        """By client name, an episode ordinal that none of its slots has reached."""
        scheduler = self.scheduler
        living = {m.name: scheduler.next_episode(m) for m in scheduler.members}
        return {**self.next_episode, **living}

    def returned(self, member: Member) -> None:
        """All episodes of a client go on where they were."""
        self.seating.returned(member)
        self.scheduler.returned(member, self._clock())

    def restart(self, member: Member) -> None:
        """All episodes of a client begin anew."""
        self.seating.restarted(member)
        self.scheduler.restart(member, self._clock())

    def add_slots(self, slots: Sequence[tuple[str, int]]) -> None:
        """Give the engine the noise keys of further slots: client names and slots within them."""
        engine = self.engine_or_none
        assert engine is not None, "the engine is not built yet"
        keys = [slot_key(self._config.seed, name, slot) for name, slot in slots]
        self.do(partial(engine.add_slots, np.array(keys, np.uint64)))

    @property
    def is_quick(self) -> bool:
        """Whether a batch is better inferred on this thread than handed to the model thread.

        Two threads that take turns wait for the interpreter's lock and for a core to wake up,
        which for a small network takes longer than inference.
        """
        engine = self.engine_or_none
        assert engine is not None, "the engine is not built yet"
        is_short = self.infer_s < self._config.short_inference
        return is_short and engine.is_on_cpu and self._model.is_idle

    def settle(self) -> None:
        """Have the last batch written while nobody waits for the model."""
        engine = self.engine_or_none
        assert engine is not None, "the engine is not built yet"
        if not self.is_quick:
            self.do(engine.settle)
            return
        try:
            engine.settle()
        except Exception as error:  # as where the model thread writes
            self._listener.failed(error)

    def do(self, job: Callable[[], None]) -> None:
        """Have the model thread do something that nobody waits for."""
        self._model.submit(job, None, self._listener.failed)
