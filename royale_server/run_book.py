"""What a run counts from row to row: episodes, clients, frames given up, and the time it took.

Lives on the I/O thread and is told by the trainer. Decides nothing, writes nothing; the clocks are
given to it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from royale_client.wire.messages import Hello
from royale_server.endpoint.hub import Hub
from royale_server.episode_metrics import LEARNER, EndedEpisode, EpisodeDeclarations
from royale_server.iteration import Standing, metrics_row
from royale_server.iteration_clock import IterationClock
from royale_server.model.engine import Inferred, Learned
from royale_server.monitoring.machine import rss_peak_mb
from royale_server.run.writer import WriterHealth
from royale_server.saved_run import RunCounters

RECENT_EPISODES = 100
"""Episodes that the reported mean return is over."""

_METRIC = "metrics/"
"""What an environment says stands below it in the record of an episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What belongs to the frames of a learn step besides them."""

    collected: int
    episodes: list[EndedEpisode]
    """That ended meanwhile, of all players."""
    discards: Mapping[str, int]
    """Frames given up meanwhile, by reason; only what occurred."""
    may_have_gaps: bool
    """See ``invariants.Expected``."""

    @property
    def returns(self) -> list[float]:
        """Returns of the learner's episodes."""
        return [episode.episode_return for episode in self.episodes if episode.is_learners]


@dataclass(slots=True)
class _Told:
    """Totals as they were when they were last told of."""

    step_bytes: int = 0
    io_busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where the episodes of a client come from."""

    env_id: str
    seats: list[int] | None
    """Of each of its slots; None where there is one seat only."""
    metrics: tuple[tuple[str, str], ...]
    """What it declares of its episodes: key in their records, and name."""

    @classmethod
    def of(cls, hello: Hello) -> _Origin:
        """Read a hello."""
        seats = None if hello.seats is None else hello.seats.tolist()
        return cls(
            env_id=hello.env_id,
            seats=None if seats is None or len(set(seats)) == 1 else seats,
            metrics=tuple((f"{_METRIC}{m.name}", m.name) for m in hello.episode_metrics),
        )

    def numbers(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return what an episode's record says of them, by name."""
        return {name: record[key] for key, name in self.metrics if key in record}


class RunBook:
    """The books of one attempt.

    Args:
        attempt: Its number.
        clock: Monotonic seconds.
        thread_clock: Processor time of the I/O thread, in seconds.
    """

    def __init__(
        self, *, attempt: int, clock: Callable[[], float], thread_clock: Callable[[], float]
    ) -> None:
        self._attempt = attempt
        self._now = clock
        self._thread_clock = thread_clock
        self.clock = IterationClock(clock())
        self.declarations = EpisodeDeclarations()
        self.iteration = 0
        """Of the newest row."""
        self._saved_iteration = 0
        self._env_steps_before = 0
        self._episodes: list[EndedEpisode] = []
        self._episodes_total = 0
        self._recent_returns: deque[float] = deque(maxlen=RECENT_EPISODES)
        self._clients: dict[str, _Origin] = {}
        self._num_joined = self._num_left = 0
        self._was_resumed = False
        self._discards_told: Counter[str] = Counter()
        self._told = _Told()

    # --- checkpoints ------------------------------------------------------------------------

    def load(self, counters: RunCounters) -> None:
        """Go on from a checkpoint."""
        self.iteration = self._saved_iteration = counters.iteration
        self._env_steps_before = counters.env_steps
        self._recent_returns.extend(counters.recent_returns)
        self._episodes = [EndedEpisode(**episode) for episode in counters.episodes]
        self._episodes_total = counters.episodes_total
        self.declarations = EpisodeDeclarations(counters.episode_metrics)
        self.declarations.env_ids = dict.fromkeys(counters.env_ids)
        self._was_resumed = True

    def counters(self, hub: Hub) -> RunCounters:
        """Return what a checkpoint has to hold."""
        return RunCounters(
            iteration=self.iteration,
            env_steps=self._env_steps(hub),
            attempt=self._attempt,
            episodes_total=self._episodes_total,
            recent_returns=list(self._recent_returns),
            episodes=[asdict(episode) for episode in self._episodes],
            next_episodes=hub.next_episodes(),
            episode_metrics=self.declarations.to_data(),
            env_ids=list(self.declarations.env_ids),
        )

    def saved(self, iteration: int) -> None:
        """A checkpoint taken after this iteration is on disk."""
        self._saved_iteration = iteration

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last episodes; None before the first."""
        returns = self._recent_returns
        return sum(returns) / len(returns) if returns else None

    # --- what happens -----------------------------------------------------------------------

    def joined(self, name: str, hello: Hello) -> list[str]:
        """A session was welcomed; return what is wrong with what it declares of its episodes."""
        self._num_joined += 1
        self._clients[name] = _Origin.of(hello)
        return self.declarations.declare(hello.env_id, hello.episode_metrics)

    def left(self, name: str) -> None:
        """A session is gone."""
        self._num_left += 1
        self._clients.pop(name, None)

    def episodes_ended(self, rows: list[dict[str, Any]], *, request: int, first_slot: int) -> None:
        """Training episodes ended; see ``Listener``."""
        self._episodes += [self._episode(row, request, first_slot) for row in rows]
        self._episodes_total += sum(row.get("player", LEARNER) == LEARNER for row in rows)

    def _episode(self, row: dict[str, Any], request: int, first_slot: int) -> EndedEpisode:
        origin, slot = self._clients[row["client"]], row["slot"]
        return EndedEpisode(
            request=request,
            slot=first_slot + slot,
            episode_return=row["return"],
            length=row["length"],
            opponent=row.get("opponent", "").partition(" ")[0],
            player=row.get("player", LEARNER).partition(" ")[0],
            env_id=origin.env_id,
            seat=None if origin.seats is None else origin.seats[slot],
            is_trained=row["trained_frames"] >= row["length"],
            metrics=self.declarations.kept(origin.env_id, origin.numbers(row)),
        )

    def inferred(self, result: Inferred) -> None:
        """A batch was inferred and its answers are on their way."""
        self.clock.inferred(result.batch, result.duration_s, self._now())

    # --- learn steps ------------------------------------------------------------------------

    def close(self, collected: int, hub: Hub) -> Batch:
        """The learn step begins: take what belongs to its frames."""
        if hub.scheduler.dispatcher.is_ordered:
            # Messages of one round arrive in any order; the numbers must not depend on it.
            self._episodes.sort()
        episodes, self._episodes = self._episodes, []
        self.clock.closed(self._now())
        given_up = {d.value: n for d, n in hub.scheduler.ledger.given_up.items()}
        discards = {reason: n - self._discards_told[reason] for reason, n in given_up.items()}
        self._discards_told = Counter(given_up)
        came_or_went = self._was_resumed or self._num_joined > 0 or self._num_left > 0
        return Batch(
            collected=collected,
            episodes=episodes,
            discards={reason: n for reason, n in discards.items() if n},
            may_have_gaps=came_or_went or any(discards.values()),
        )

    def take_back(self, batch: Batch) -> None:
        """The learn step was undone: its frames are learnt from later, and this belongs to them."""
        self._episodes[:0] = batch.episodes
        self._discards_told.subtract(batch.discards)

    def row(
        self,
        batch: Batch,
        result: Learned,
        *,
        hub: Hub,
        writer: WriterHealth,
        capacity: int,
        saves: bool,
    ) -> dict[str, Any]:
        """The learn step is done: return the row of its iteration and begin the next one.

        Args:
            batch: What ``close`` returned.
            result: What was learnt.
            hub: The clients.
            writer: How the writer fares.
            capacity: Cells of storage.
            saves: Whether there are checkpoints.
        """
        now, busy_s = self._now(), self._thread_clock()
        self.iteration += 1
        self._recent_returns.extend(batch.returns)
        standing = Standing(
            iteration=self.iteration,
            attempt=self._attempt,
            collected=batch.collected,
            discarded=sum(batch.discards.values()),
            env_steps=self._env_steps(hub),
            joined=self._num_joined,
            left=self._num_left,
            step_bytes=hub.step_bytes - self._told.step_bytes,
            io_busy_s=busy_s - self._told.io_busy_s,
            rss_peak_mb=rss_peak_mb(),
            iterations_since_checkpoint=self.iteration - self._saved_iteration if saves else None,
            capacity=capacity,
        )
        row = metrics_row(
            standing,
            result=result,
            episodes=batch.episodes,
            declarations=self.declarations,
            recent_returns=self._recent_returns,
            episodes_total=self._episodes_total,
            hub=hub,
            writer=writer,
            clock=self.clock,
            now=now,
        )
        self._told = _Told(hub.step_bytes, busy_s)
        self._num_joined = self._num_left = 0
        self._was_resumed = False
        self.clock.opened(now)
        return row

    def begin(self) -> None:
        """The engine is there: nothing before counts."""
        self.clock.opened(self._now())
        self._told.io_busy_s = self._thread_clock()

    def _env_steps(self, hub: Hub) -> int:
        return self._env_steps_before + hub.scheduler.ledger.env_steps_total
