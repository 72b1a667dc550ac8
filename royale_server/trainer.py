"""The run: iterations, rows, checkpoints, and how it ends.

Runs on the I/O thread and listens to the hub. Decides when to save and when to stop; the writer
thread writes, the model thread learns. Never blocks, never touches a socket.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from algorithms.base import LearnerState
from algorithms.errors import LearnAborted
from algorithms.spaces import Spaces
from checkpoints import POLICY_VERSION, CheckpointContents, check_saveable, enter_facts
from royale_client.wire.errors import RoyaleError
from royale_client.wire.messages import Hello
from royale_server import crash_points
from royale_server.alarms.engine import Change
from royale_server.config import ServerConfig
from royale_server.endpoint.connection import Peer
from royale_server.endpoint.hub import Hub
from royale_server.endpoint.probing import ProbeReport
from royale_server.episode_metrics import LEARNER
from royale_server.evaluation.desk import Round
from royale_server.evaluation.episodes import EpisodeRound
from royale_server.evaluation.metrics import report_of
from royale_server.evaluation.scores import Scores
from royale_server.exit_codes import ExitCode
from royale_server.model.build import Built, Components, Saved, build
from royale_server.model.engine import Inferred, Learned, Snapshot
from royale_server.model.invariants import BrokenBatchError
from royale_server.model.worker import ModelWorker
from royale_server.monitoring.console import Console
from royale_server.monitoring.heat_maps import HeatMaps
from royale_server.preflight.finding import PreflightError
from royale_server.preflight.gate import ClientGate
from royale_server.run.writer import Writer
from royale_server.run_book import Batch, RunBook
from royale_server.saved_run import RunCounters, SavedRun, Sessions, to_contents
from royale_server.saver import NO_CELLS, Mark, Saver
from royale_server.scheduler import Effect, Group, Learn, Scheduler
from royale_server.steering import Answer, Steering
from royale_server.watch import Watch

logger = logging.getLogger(__name__)

SHOWN_EVENTS = frozenset({"quorum", "dispatch"})
"""Kinds of events that a person should see at once: rare, and about who is waited for."""

LEARN_GRACE_S = 30.0
"""How long a stop waits for a learn step before it is undone."""


class End(enum.Enum):
    """Why a run ends: its word in the events, what clients are told, the exit code once saved."""

    FINISHED = ("finished", "finished", ExitCode.FINISHED)
    IDLE = ("idle", "finished", ExitCode.FINISHED)
    OPERATOR = ("operator", "stopping", ExitCode.FINISHED)
    TERMINATED = ("terminated", "stopping", ExitCode.TERMINATED)
    HALTED = ("halted", "halted", ExitCode.REFUSED)
    CRASHED = ("crashed", "stopping", ExitCode.CRASHED)

    def __init__(self, word: str, stop_reason: str, code: ExitCode) -> None:
        self.word = word
        self.stop_reason = stop_reason
        self.code = code


WITH_CHECKPOINT = (End.OPERATOR, End.TERMINATED, End.IDLE)
"""Ends whose exit codes promise a checkpoint."""


@dataclass(slots=True)
class Start:
    """Where an attempt begins."""

    attempt: int
    directory: Path
    """Of the run; for the trial save."""
    resumed: SavedRun | None = None
    resumed_from: Mark | None = None
    """Mark of the checkpoint it is resumed from."""
    warm_start: LearnerState | None = None
    run_id: str = ""
    """Identity of the run."""
    facts: Mapping[str, Any] | None = None
    """Digests that go into every checkpoint's manifest."""


class Trainer:
    """One attempt of one run.

    Args:
        config: Settings of the server.
        components: Classes of policy and algorithm.
        start: Fresh, resumed or warm-started.
        model: Runs the engine's jobs.
        writer: Writes rows and checkpoints.
        console: Shows the run to a person.
        watch: Looks after alarms.
        clock: Monotonic seconds.
        post: Hands a callback from another thread to this one.
        on_begin: Called when the engine is built and the run has begun.
        row_marks: What every row must carry beside its numbers.
        on_end: Called once, when everything is written and clients are told.
        thread_clock: Processor time of the I/O thread, in seconds.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        components: Components,
        start: Start,
        model: ModelWorker,
        writer: Writer,
        console: Console,
        watch: Watch,
        clock: Callable[[], float],
        post: Callable[[Callable[[], None]], None],
        on_begin: Callable[[], None],
        row_marks: Callable[[], Mapping[str, float]],
        on_end: Callable[[ExitCode], None],
        thread_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._config = config
        self._components = components
        self._start = start
        self._model = model
        self._writer = writer
        self._console = console
        self._watch = watch
        self._clock = clock
        self._post = post
        self._on_begin = on_begin
        self._row_marks = row_marks
        self._on_end = on_end
        self._abort = threading.Event()
        self._end: End | None = None
        self._end_message = ""
        self._halting: tuple[Change, ...] = ()
        self._refusal: BrokenBatchError | None = None
        self._stop_deadline: float | None = None
        self._is_learning = False
        self._is_closing = False
        self._is_ended = False
        self._num_signals = 0
        self._has_collected = False
        self._built: Built | None = None
        self._unchecked: Built | None = None
        """An engine that the preflight has not let through so far."""
        self._report: ProbeReport | None = None
        self._has_joined = False
        self._gate = ClientGate(
            config, directory=start.directory, run_id=start.run_id, console=console
        )
        self._spaces: Spaces | None = None
        self._saver: Saver | None = None
        self._step = 0
        self._book = RunBook(attempt=start.attempt, clock=clock, thread_clock=thread_clock)
        self._heat_maps = HeatMaps(config.heatmap_every)
        self._verdict: dict[str, float] = {}
        """What the evaluation that was complete last came to, until a row tells it."""
        self._scores = Scores(config.evaluate)
        self._idle_since: float | None = None
        self.steering = Steering(self)
        """Told what a person asks for."""
        self.hub: Hub | None = None
        """Set by the assembly before the first connection."""

    @property
    def is_learning(self) -> bool:
        """Whether a learn step runs."""
        return self._is_learning

    @property
    def _hub(self) -> Hub:
        assert self.hub is not None, "the hub is joined before the first event"
        return self.hub

    # --- beginning ------------------------------------------------------------------------

    def spaces_known(self, spaces: Spaces) -> None:
        """Build the engine for these spaces; clients wait in the lobby until it is there."""
        self._spaces = spaces
        saved = self._start.resumed
        job = partial(
            build,
            self._config,
            self._components,
            spaces,
            resumed=None
            if saved is None
            else Saved(saved.learner, saved.frames, saved.generators, saved.opponents),
            warm_start=self._start.warm_start,
        )
        self._model.submit(job, self._engine_built, self._build_refused)

    def _engine_built(self, built: Built) -> None:
        if not self._is_closing:
            self._unchecked = built
            self._begin_if_checked()

    def probed(self, report: ProbeReport) -> None:
        """See `Listener`. One that comes later than the run's beginning is judged by itself."""
        if self._built is None:
            self._report = report
            self._begin_if_checked()
            return
        try:
            self._gate.check_late(self._built.facts, report)
        except PreflightError as error:
            if not self._has_joined:
                self._build_refused(error)
                return
            logger.error("%s", error)
            self._hub.refuse_environment(report.hello, " ".join(str(error).split()))
            return
        self._hub.passed(report.hello)

    def _begin_if_checked(self) -> None:
        """Begin once the engine is there and the first environment has answered."""
        built, report = self._unchecked, self._report
        if built is None or self._is_closing or self._hub.is_probing:
            return
        self._unchecked = None
        try:
            self._gate.check(built.facts, self._hub.first_hello, report)
        except PreflightError as error:
            self._build_refused(error)
            return
        if report is not None:
            self._hub.passed(report.hello)
        self._begin(built)

    def _begin(self, built: Built) -> None:
        self._built = built
        self._step = built.global_step
        self._on_begin()
        resumed = self._start.resumed
        if resumed is not None:
            self._continue(resumed.counters)
        scheduler = Scheduler(
            self._config.scheduler(),
            target=built.frames_wanted,
            capacity=built.engine.storage.capacity,
        )
        scheduler.ledger.version = built.policy_version
        self._book.begin()
        self._console.built(device=built.device, frames_wanted=built.frames_wanted)
        if built.saves:
            self._saver = self._make_saver(built)
            self._model.submit(
                partial(built.engine.snapshot, NO_CELLS), self._try_saving, self.failed
            )
        self._hub.attach(built.engine, scheduler, None if resumed is None else resumed.sessions)
        self._start.resumed = None  # a copy of everything: let it go
        if self._hub.awaited:
            logger.info("clients of the checkpoint: %s", ", ".join(self._hub.awaited))

    def _make_saver(self, built: Built) -> Saver:
        return Saver(
            hub=self._hub,
            engine=built.engine,
            model=self._model,
            writer=self._writer,
            contents=self._contents,
            saved=self._start.resumed_from,
            clock=self._clock,
            post=self._post,
            on_saved=self._checkpoint_saved,
            on_refused=self._checkpoint_refused,
            on_failed=self.failed,
        )

    def _try_saving(self, snapshot: Snapshot) -> None:
        """What cannot be saved must not surface after hours of training."""
        job = partial(check_saveable, self._start.directory, self._contents(snapshot, None))
        self._model.submit(job, _note_size, self.failed)

    def _continue(self, counters: RunCounters) -> None:
        self._book.load(counters)
        self._heat_maps.resumed(counters.iteration)
        self._hub.expect_episodes(counters.next_episodes)
        assert self._start.resumed_from is not None
        step = self._start.resumed_from.step
        logger.info("resumed from the checkpoint of step %s", f"{step:,}")
        self.event("resumed", f"resumed from step {step}", step=step)

    def _build_refused(self, error: BaseException) -> None:
        """The policy, a checkpoint or the device does not fit: refuse the run, with its reason."""
        if not isinstance(error, RoyaleError):
            self.failed(error)
            return
        logger.error("%s", error)
        sentence = " ".join(str(error).split())
        self._hub.refuse_lobby(f"the server cannot train this environment: {sentence}")
        self._end, self._end_message = End.HALTED, str(error)
        self._finish(ExitCode.REFUSED)

    # --- what the hub tells -----------------------------------------------------------------

    def client_joined(self, peer: Peer, hello: Hello) -> None:
        """See `Listener`."""
        self._idle_since = None
        self._heat_maps.declare(peer.name, hello.episode_metrics)
        for problem in self._book.joined(peer.name, hello):
            logger.warning("%s", problem)
            self.event("episode_metric", problem, client=peer.name)
        self._has_joined = True
        text = f"client {peer.name} joined with {sum(hello.groups)} environments of {hello.env_id}"
        self.event("joined", text, client=peer.name, slots=sum(hello.groups), host=hello.host)
        address = peer.connection.address
        self._console.client_joined(peer.name, hello.env_id, hello.num_slots, address)
        if peer.name != hello.client_name:
            logger.warning(
                "a client named %s is here already: this one is %s in this run; give each client "
                "its own --client-name to have the same noise again",
                hello.client_name,
                peer.name,
            )
        missing = self._hub.missing_clients()
        if missing:
            self._console.waiting_for_clients(missing)

    def client_left(self, peer: Peer, why: str) -> None:
        """See `Listener`."""
        self._book.left(peer.name)
        self._heat_maps.left(peer.name)
        self.event("left", f"client {peer.name} left: {why}", client=peer.name)
        if self._is_ended:
            return
        self._console.client_left(peer.name, why)
        if self._hub.num_members == 0:
            self._idle_since = self._clock()
            self._console.all_clients_gone(self._config.exit_when_idle)

    def episodes_ended(
        self, rows: list[dict[str, Any]], *, request: int, first_slot: int, evaluation: bool
    ) -> None:
        """See `Listener`. An episode belongs to the iteration in which it ended."""
        iteration = self._book.iteration + 1 + self._is_learning
        kind = "eval" if evaluation else "train"
        for row in rows:
            row["iteration"], row["kind"] = iteration, kind
        self._writer.episodes(rows)
        self._watch.recorder.ended(rows, first_slot)
        if not evaluation:
            learners = [row for row in rows if row.get("player", LEARNER) == LEARNER]
            self._heat_maps.add(learners)
            self._book.episodes_ended(rows, request=request, first_slot=first_slot)

    def evaluated(self, round_: Round | EpisodeRound, *, is_last: bool) -> None:
        """See `Listener`. A server that only evaluates has a row a round, and then ends."""
        report = report_of(round_)
        self._verdict = report.metrics
        logger.info("%s", report.text)
        facts = {**report.facts, **report.metrics}
        self.event("evaluated", report.text, iteration=self._book.iteration, **facts)
        scored = self._scores.enter(round_)
        if scored and self._saver is not None and round_.version is not None:
            # After every checkpoint that was handed over; later ones get it with their other facts.
            directory = self._start.directory
            self._writer.task(partial(_enter_score, directory, round_.version, scored))
        assert self._built is not None
        if self._built.engine.learner.evaluates:
            self._book.iteration += 1
            marks = {"run/iteration": self._book.iteration, "run/attempt": self._start.attempt}
            self._writer.metrics({**marks, **self._verdict}, self._step)
            if is_last:
                self.stop(End.FINISHED, f"all rounds are played; the last: {report.text}")

    def inferred(self, result: Inferred) -> None:
        """See `Listener`."""
        if not self._has_collected:
            # The first iteration begins with its first batch, not with the wait for clients.
            self._book.clock.opened(self._clock() - result.duration_s)
        self._has_collected = True
        self._book.inferred(result)
        self._watch.inferred(result)
        if self._built is not None and self._built.frames_wanted is not None:
            stored = self._hub.scheduler.ledger.num_complete
            self._console.collecting(stored, self._built.frames_wanted)

    def rested(self, effects: tuple[Effect, ...]) -> None:
        """See `RestListener`."""
        self._book.clock.rested(self._clock())
        if self._saver is not None:
            self._saver.rested(effects)
        else:
            self._apply(effects)

    def _apply(self, effects: tuple[Effect, ...]) -> None:
        assert self._built is not None
        apply = partial(self._built.engine.apply, effects)
        self._model.submit(apply, lambda _: None, self.failed)

    def gathered(self, sessions: Sessions) -> None:
        """See `RestListener`."""
        if self._saver is not None:
            self._saver.gathered(sessions)

    def event(self, kind: str, message: str, **facts: object) -> None:
        """See `Listener`."""
        if kind in SHOWN_EVENTS:
            logger.info("%s", message)
        self._writer.event(
            {"kind": kind, "message": message, "attempt": self._start.attempt, **facts}
        )

    def queue_waiting(self, groups: list[Group], since: float) -> None:
        """See `Listener`."""
        now = self._clock()
        missing = self._hub.missing_clients()
        self._console.queue_waiting(groups, waited_s=now - since, now=now, missing_clients=missing)

    def must_stop(self, message: str) -> None:
        """See `Listener`."""
        logger.error("%s", message)
        self.stop(End.HALTED, message)

    def failed(self, error: BaseException) -> None:
        """Fatal: nothing is saved, since the learner may be half changed."""
        if self._is_ended:
            return
        logger.error("the run cannot go on: %s", error, exc_info=error)
        self.event("crashed", f"{type(error).__name__}: {error}")
        self._end, self._end_message = End.CRASHED, "an internal error; its log has the cause"
        self._finish(ExitCode.CRASHED)

    # --- learning -----------------------------------------------------------------------------

    def learn_due(self, command: Learn) -> None:
        """See `Listener`. A run that ends saves what it has learnt and learns no more."""
        if self._end is not None:
            # The frames stay, to be saved; what was still to be written to them goes with them.
            self._apply(command.effects)
            self._hub.rest()
            self._hub.learn_aborted()
            return
        assert self._built is not None
        self._is_learning = True
        batch = self._book.close(len(command.cells), self._hub)
        self._watch.meter.learning(self._clock())
        self._console.collected(batch.collected, self._book.clock.collect_s(self._clock()))
        job = partial(
            self._built.engine.learn,
            command,
            version=self._hub.scheduler.ledger.version,
            may_have_gaps=batch.may_have_gaps,
            returns=batch.returns,
            discards=batch.discards,
            should_abort=self._should_abort,
            progress=self._progress,
        )
        self._model.submit(job, partial(self._learned, batch), partial(self._not_learned, batch))

    def _should_abort(self) -> bool:
        """On the model thread: whether the stop that was asked for waits no longer."""
        deadline = self._stop_deadline
        return self._abort.is_set() or (deadline is not None and self._clock() >= deadline)

    def _progress(self, epoch: int, epochs: int, metrics: dict[str, float]) -> None:
        """On the model thread: hand the line over."""
        self._post(partial(self._pass_done, epoch, epochs, metrics))

    def _pass_done(self, epoch: int, epochs: int, metrics: dict[str, float]) -> None:
        self._watch.meter.passed(self._clock())
        self._console.epoch(epoch, epochs, metrics)

    def _learned(self, batch: Batch, result: Learned) -> None:
        assert self._built is not None
        self._is_learning = False
        self._watch.meter.learned(self._clock())
        self._watch.worst_ratios = result.suspects
        self._step = result.global_step
        hub = self._hub
        hub.snapshot_if_due(result.policy_version)
        if hub.scheduler.ledger.conservation_error:
            text = f"{hub.scheduler.ledger.conservation_error} frames are unaccounted for"
            logger.error("%s; this is a defect", text)
            self.event("not_conserved", text)
        row = self._book.row(
            batch,
            result,
            hub=hub,
            writer=self._writer.health(),
            capacity=self._built.engine.storage.capacity,
            saves=self._saver is not None,
        )
        row |= self._row_marks()
        row |= self._verdict
        self._verdict = {}
        self._writer.metrics(row, result.global_step)
        heat_maps = self._heat_maps.take(self._book.iteration, result.global_step)
        if heat_maps is not None:
            self._writer.heat_maps(heat_maps)
        self._console.iteration(row)
        reason = self._reached_limit(result)
        if reason is not None and self._end is None:
            self._end, self._end_message = End.FINISHED, reason
        if self._end is not None:
            self._save_and_end()
        elif self._saver is not None and self._book.iteration % self._config.save_every == 0:
            self._saver.save()
        hub.learned(
            version=result.policy_version,
            target=result.frames_wanted,
            duration_s=result.duration_s,
        )

    def _reached_limit(self, result: Learned) -> str | None:
        until = self._config.until_timesteps
        if until is None:
            return result.finished
        if result.global_step >= until:
            return f"{result.global_step} of {until} frames collected"
        return None

    def _not_learned(self, batch: Batch, error: BaseException) -> None:
        if isinstance(error, LearnAborted):
            self._is_learning = False
            self._watch.meter.learned(self._clock())
            self._book.take_back(batch)
            logger.warning("the learn step was given up: its frames are saved, to be learnt later")
            self._save_and_end()
            self._hub.learn_aborted()
            return
        if isinstance(error, BrokenBatchError):
            self._refuse_batch(error)
            return
        self.failed(error)

    def _refuse_batch(self, error: BrokenBatchError) -> None:
        """Halt: the learner is saved as the last row describes it, the broken frames are not."""
        logger.error("%s", error)
        self.event("batch_refused", str(error), invariant=error.invariant)
        self._is_learning = False
        self._is_closing = True
        self._end, self._end_message = End.HALTED, str(error)
        self._refusal = error
        if self._saver is not None and self._book.iteration > 0:
            self._saver.save_learner(self._conclude)
        else:
            self._conclude()

    # --- stopping ---------------------------------------------------------------------------

    def signalled(self, end: End, message: str) -> None:
        """A person or a supervisor asks for the end; asking twice gives up on a learn step."""
        self._num_signals += 1
        if self._num_signals > 1:
            self._abort.set()
            if self._saver is not None:
                self._saver.hurry()
        self.stop(end, message)

    def stop(self, end: End, message: str) -> None:
        """End the run with a checkpoint; a learn step under way is waited for, then undone."""
        if self._end is not None:
            return
        self._end, self._end_message = end, message
        self.event("stopping", message)
        self._console.stopping(message, learning=self._is_learning)
        if self._is_learning:
            self._hub.rest()
            self._stop_deadline = self._clock() + LEARN_GRACE_S
        else:
            self._save_and_end()

    def loop_lagged(self, lag_s: float) -> None:
        """The event loop came to what was due this much later."""
        self._book.clock.lagged(lag_s)

    def tick(self) -> None:
        """Do what is due by time alone. Call it about ten times a second."""
        self._begin_if_checked()  # whoever was asked may have left without an answer
        if self._saver is not None:
            self._saver.tick()
        lost = self._hub.clients_lost
        self.alarmed(self._watch.tick(is_busy=self._is_busy(), clients_lost=lost))
        idle_limit = self._config.exit_when_idle
        if idle_limit is None or self._idle_since is None or self._end is not None:
            return
        if self._clock() - self._idle_since >= idle_limit:
            self.stop(End.IDLE, f"no clients for {idle_limit:g} s")

    def _is_busy(self) -> bool:
        """Whether something should be moving: not while nobody is there, or all are to rest."""
        if self._is_learning:
            return True
        is_saving = self._saver is not None and self._saver.is_under_way
        is_resting = is_saving or self._hub.is_paused or self._end is not None
        return self._hub.num_members > 0 and not is_resting

    def alarmed(self, changes: Sequence[Change]) -> None:
        """Show what changed about alarms; stop if one of them says so."""
        if not changes:
            return
        self._watch.show(changes)
        halting = tuple(change for change in changes if change.is_halt)
        if halting and self._end is None:
            self._halting = halting
            names = ", ".join(change.alarm.name for change in halting)
            self.stop(End.HALTED, f"halted by {'alarms' if len(halting) > 1 else 'alarm'} {names}")
            return
        dumped = [c for c in changes if c.kind == "raise" and c.alarm.dump and not c.is_halt]
        if dumped and self._end is None:
            self._dump(dumped, dumped[0].iteration, _nothing)

    def _dump(self, changes: Sequence[Change], iteration: int, done: Callable[[], None]) -> None:
        saved = self._saved
        self._watch.dump(
            changes,
            refusal=self._refusal,
            iteration=iteration,
            checkpoint=None if saved is None else self._start.directory / str(saved.step),
            done=done,
        )

    # --- what a person asks for: see `Steered` ------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """See `Steered`."""
        return self._end is not None

    @property
    def is_paused(self) -> bool:
        """See `Steered`."""
        return self._hub.is_paused

    def checkpoint_now(self, done: Answer) -> None:
        """See `Steered`."""
        if self._saver is None or self._book.iteration == 0:
            done(False, "no checkpoint: nothing has been learnt yet")
            return
        self._saver.save(partial(self._tell_saved, done))

    def _tell_saved(self, done: Answer) -> None:
        assert self._saver is not None
        error, saved = self._saver.error, self._saver.saved
        if error is None and saved is not None:
            done(True, f"the checkpoint of step {saved.step} is on disk")
        else:
            done(False, f"no checkpoint: {error}")

    def quit(self, message: str) -> None:
        """See `Steered`."""
        self.stop(End.OPERATOR, message)

    def pause(self, done: Answer) -> None:
        """See `Steered`."""
        if self._built is None:
            done(False, "no pause: the run waits for its first client")
            return
        self._hub.pause()
        done(True, "paused; p again, c or q in the control file ends it, or royale continue")

    def end_pause(self, *, ends_run: bool) -> None:
        """See `Steered`. Who quits goes from rest to rest: no learn step comes between."""
        is_saving = self._saver is not None and self._saver.is_under_way
        self._hub.end_pause(stay_at_rest=is_saving or ends_run)

    def _save_and_end(self) -> None:
        crash_points.reach("stop")
        self._is_closing = True
        if self._saver is not None and self._book.iteration > 0:
            self._saver.save_last(self._conclude)
        else:
            self._hub.rest()
            self._conclude()

    def _checkpoint_saved(self, step: int, path: Path) -> None:
        if self._saver is not None and self._saver.saved is not None:
            self._book.saved(self._saver.saved.iteration)
        self.event("saved", f"saved the checkpoint of step {step}", step=step)
        self._console.checkpoint_saved(step, path)

    def _checkpoint_refused(self, step: int, error: Exception) -> None:
        logger.error("the checkpoint of step %d could not be written: %s", step, error)
        self.event("checkpoint_failed", str(error), step=step)

    def _contents(self, snapshot: Snapshot, sessions: Sessions | None) -> CheckpointContents:
        assert self._spaces is not None
        version = snapshot.policy_version
        facts: dict[str, Any] = {**(self._start.facts or {}), "metrics_row": self._book.iteration}
        facts[POLICY_VERSION] = version
        score = self._book.mean_return
        if score is not None:
            facts |= {"score": score, "score_of": "return_mean_100"}
        facts |= self._scores.facts_of(version)
        return to_contents(
            snapshot,
            counters=self._book.counters(self._hub),
            spaces=self._spaces,
            sessions=sessions,
            facts=facts,
        )

    def _conclude(self) -> None:
        assert self._end is not None
        code = self._end.code
        if self._saver is not None and self._saver.error is not None:
            code = ExitCode.CRASHED
        elif self._end in WITH_CHECKPOINT and not self._saved_by_this_attempt():
            code = ExitCode.INTERRUPTED
        if self._halting:
            self._dump(self._halting, self._halting[0].iteration, partial(self._finish, code))
        elif self._refusal is not None:
            self._dump((), self._book.iteration + 1, partial(self._finish, code))
        else:
            self._finish(code)

    @property
    def _saved(self) -> Mark | None:
        return self._start.resumed_from if self._saver is None else self._saver.saved

    def _saved_by_this_attempt(self) -> bool:
        return self._saved is not None and self._saved != self._start.resumed_from

    def _finish(self, code: ExitCode) -> None:
        if self._is_ended:
            return
        self._is_closing = self._is_ended = True
        assert self._end is not None
        self.event("ended", self._end_message, exit_code=int(code), reason=self._end.word)
        self._hub.stop(self._end.stop_reason, self._end_message)
        if code is not ExitCode.REFUSED or self._built is not None:
            self._console.ended(
                self._end_message,
                code=code,
                saved_step=None if self._saved is None else self._saved.step,
                step=self._step,
                is_finished=self._end is End.FINISHED,
            )
        self._on_end(code)


def _nothing() -> None:
    """Nobody waits for it."""


def _enter_score(directory: Path, version: int, facts: Mapping[str, Any]) -> None:
    """On the writer's thread."""
    for path in enter_facts(directory, version, facts):
        logger.debug("%s was evaluated: %s", path, facts)


def _note_size(size_bytes: int) -> None:
    logger.debug("a checkpoint takes %.1f MB", size_bytes / 1e6)
