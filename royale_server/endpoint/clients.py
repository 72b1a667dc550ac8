"""All clients of a run as the run sees them: who is there, and what it tells and asks of them all.

Builds the parts that look after clients and passes on what the run wants to the one whose subject
it is. Messages of clients go another way: see ``royale_server.endpoint.hub``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from royale_client.wire.limits import Limits
from royale_client.wire.messages import Hello
from royale_server.config import ServerConfig
from royale_server.endpoint.absence import Absence
from royale_server.endpoint.admission import Admission
from royale_server.endpoint.client_notes import ClientNotes
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.continuity import Continuity
from royale_server.endpoint.departures import Departures
from royale_server.endpoint.explaining import Explainer
from royale_server.endpoint.listener import Listener
from royale_server.endpoint.patience import Patience
from royale_server.endpoint.probing import Probing
from royale_server.endpoint.quarantine import Quarantine
from royale_server.endpoint.reception import Reception
from royale_server.endpoint.resuming import Resuming
from royale_server.endpoint.roll import Roll
from royale_server.endpoint.run_core import RunCore
from royale_server.model.engine import Engine, Inferred
from royale_server.model.worker import ModelWorker
from royale_server.saved_run import Sessions
from royale_server.scheduler import Role, Scheduler


class Clients(ABC):
    """All clients of one run.

    Args:
        config: Settings of the server.
        limits: Limits on messages.
        admission: Decides on hellos.
        model: Runs the engine's jobs.
        listener: The run.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        limits: Limits,
        admission: Admission,
        model: ModelWorker,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._limits = limits
        self._admission = admission
        self._model = model
        self._listener = listener
        self._clock = clock
        roll = self._roll = Roll()
        core = self._core = RunCore(config, model, listener, clock)
        continuity = self._continuity = Continuity(
            config, roll, listener, restart=core.restart, returned=core.returned, clock=clock
        )
        absence, quarantine = Absence(config.reconnect_grace), Quarantine()
        self._explainer = Explainer(config, roll, listener.queue_waiting, clock())
        probing = self._probing = Probing(roll, listener.probed, clock)
        self._notes = ClientNotes(config, roll, listener, clock)
        departures = self._departures = Departures(
            core,
            roll,
            absence=absence,
            continuity=continuity,
            probing=probing,
            quarantine=quarantine,
            listener=listener,
            clock=clock,
        )
        self._resuming = Resuming(
            config,
            core,
            roll,
            absence=absence,
            continuity=continuity,
            departures=departures,
            listener=listener,
            clock=clock,
        )
        self._reception = Reception(
            config,
            core,
            roll,
            admission=admission,
            quarantine=quarantine,
            continuity=continuity,
            probing=probing,
            resuming=self._resuming,
            departures=departures,
            listener=listener,
            clock=clock,
        )
        self._patience = Patience(
            config, roll, absence=absence, probing=probing, departures=departures
        )
        self.on_wake: Callable[[float], None] = lambda _at: None
        """Called with the time at which `advance` is due if nothing happens before."""
        self._inferred_here: deque[Inferred] = deque()
        """Inferred on this thread and not answered yet."""
        self.step_bytes = 0
        """Size of all requests received."""

    @abstractmethod
    def advance(self) -> None:
        """Carry out everything the scheduler finds due."""

    # --- what others may look at --------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler; there is one as soon as the engine is built."""
        scheduler = self._core.scheduler_or_none
        assert scheduler is not None, "the engine is not built yet"
        return scheduler

    @property
    def peers(self) -> Iterable[Peer]:
        """Everybody connected, welcomed or not."""
        return self._roll.peers

    @property
    def num_connections(self) -> int:
        """Connections open, welcomed or not."""
        return len(self._roll.peers)

    @property
    def num_members(self) -> int:
        """Sessions taking part."""
        return len(self._roll.by_member)

    @property
    def clients_missing(self) -> int:
        """Train clients that take part fewer than the run is meant to have."""
        return max(0, self._config.min_clients - self._num_train_members)

    def missing_clients(self) -> int:
        """Train clients still wanted before the first round."""
        return self._explainer.missing_clients(self._core.scheduler_or_none)

    @property
    def awaited(self) -> list[str]:
        """Names of the clients of the checkpoint that are not back."""
        return sorted(self._continuity.awaited)

    @property
    def clients_lost(self) -> int:
        """Clients that took part and are gone without a goodbye."""
        return self._departures.clients_lost

    @property
    def clients_lost_share(self) -> float:
        """Train clients that are lost and not replaced, by those and the ones taking part."""
        unreplaced = self._roll.unreplaced
        return unreplaced / max(1, unreplaced + self._num_train_members)

    @property
    def _num_train_members(self) -> int:
        return sum(member.role is Role.TRAIN for member in self._roll.by_member)

    @property
    def nonfinite_frames(self) -> Counter[str]:
        """Rows with NaN or infinities, by client."""
        return self._notes.nonfinite_frames

    # --- beginning and end --------------------------------------------------------------

    def attach(
        self, engine: Engine, scheduler: Scheduler, sessions: Sessions | None = None
    ) -> None:
        """Begin: the engine is built, clients in the lobby are welcomed.

        Args:
            engine: The engine.
            scheduler: The scheduler, fresh.
            sessions: The clients of the checkpoint that the run is resumed from.
        """
        self._core.attach(engine, scheduler, sessions)
        if sessions is not None:
            self._core.expect(self._continuity.expect(sessions, scheduler), sessions)
        self._explainer.last_dispatch_at = self._clock()
        self._reception.admit_lobby()
        self.advance()

    def stop(self, reason: str, message: str) -> None:
        """Tell every client why the server goes, and close. Nothing is scheduled any more."""
        self._departures.stop(reason, message)

    def fail(self, error: BaseException) -> None:
        """Pass on an error that the run cannot survive."""
        self._listener.failed(error)

    # --- environments that are asked what they do ---------------------------------------

    @property
    def first_hello(self) -> Hello | None:
        """Of the client that came first in this attempt."""
        return self._admission.first_hello

    @property
    def is_probing(self) -> bool:
        """Whether an environment is asked what it can do."""
        return self._probing.is_open

    def passed(self, hello: Hello) -> None:
        """Admit clients with the environment of this hello from now on."""
        self._reception.passed(hello)

    def refuse_environment(self, hello: Hello, message: str) -> None:
        """Send away the clients with the environment of this hello."""
        self._reception.refuse_environment(hello, message)

    def refuse_lobby(self, message: str) -> None:
        """The engine could not be built for these clients' spaces."""
        self._reception.refuse_lobby(message)

    # --- learn steps --------------------------------------------------------------------

    def snapshot_if_due(self, version: int) -> None:
        """The policy has this version now: keep it as an opponent, if it is time for one."""
        self._core.seating.learned(version)

    def learned(self, *, version: int, target: int | None, duration_s: float) -> None:
        """A learn step is done; collecting goes on."""
        self._explainer.expected_learn_s = duration_s
        self.scheduler.learned(self._clock(), version=version, target=target)
        self._explainer.last_dispatch_at = self._clock()
        self.advance()

    def learn_aborted(self) -> None:
        """The learn step was undone."""
        self.scheduler.learn_aborted(self._clock())
        self.advance()

    # --- rest, pauses and checkpoints ---------------------------------------------------

    def next_episodes(self) -> dict[str, int]:
        """By client name, an episode ordinal that none of its slots has reached.

        Goes into the checkpoint: a client of that name must not draw its old noise again.
        """
        return self._core.next_episodes()

    def expect_episodes(self, next_episodes: Mapping[str, int]) -> None:
        """Continue the episode ordinals of a resumed run."""
        self._core.next_episode.update(next_episodes)

    def rest(self) -> None:
        """Come to rest, so that the run can be saved; `Listener.rested` and `gathered` follow."""
        scheduler = self._core.scheduler_or_none
        if scheduler is not None:
            scheduler.rest(self._clock())
            self.advance()

    def pause(self) -> None:
        """Come to rest until `resume`."""
        self._explainer.is_paused = True
        self.rest()

    @property
    def is_paused(self) -> bool:
        """Whether a person has paused the run."""
        return self._explainer.is_paused

    def end_pause(self, *, stay_at_rest: bool) -> None:
        """End a pause.

        Args:
            stay_at_rest: A checkpoint is taken, and `saved` goes on after it, or the run ends.
        """
        self._explainer.is_paused = False
        if not stay_at_rest:
            self.resume()

    def saved(self) -> None:
        """Go on after a rest for a checkpoint, unless the run is paused."""
        if not self._explainer.is_paused:
            self.resume()

    def resume(self) -> None:
        """Go on after a rest, reached or not."""
        self._explainer.is_paused = False
        self._continuity.stop_gathering()
        self.scheduler.resume(self._clock())
        self._explainer.last_dispatch_at = self._clock()
        self.advance()

    def give_up_gathering(self) -> None:
        """Wait for no further snapshot; `Listener.gathered` follows at once."""
        self._continuity.give_up()
        self.advance()
