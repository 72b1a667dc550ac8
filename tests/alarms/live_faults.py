"""Faults planted in a run in memory: in the environment, the network, the data, the disk.

Each begins after two healthy rows. What is not here has only been seen on planted rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from algorithms.ppo.config import PPOConfig
from checkpoints import CheckpointWriteError
from royale_client.wire.episodes import EpisodeMetric, MetricValue
from royale_server.monitoring.trackers import TrackerHealth
from royale_server.scheduler.ledger import Discard
from tests.server.trainer_world import FRAMES, Attempt

CALM = PPOConfig(
    frames_per_iteration=FRAMES,
    total_timesteps=10_000 * FRAMES,
    num_epochs=3,
    minibatch_size=16,
    learning_rate=3e-3,
)
FROZEN = replace(CALM, freeze_actor_iterations=3)
HASTY = replace(FROZEN, learning_rate=0.5)
TAUGHT = replace(CALM, freeze_actor_iterations=12, learning_rate=1e-2, num_epochs=10, gamma=0.0)
SCALED = replace(CALM, scale_rewards=True)

Plant = Callable[[Attempt], None]


def _nothing(_attempt: Attempt) -> None:
    """The setting is the fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and the run that it is planted in."""

    what: str
    """In words, for the table of the docs."""
    plant: Plant
    algo: PPOConfig = CALM
    healthy_rows: int = 2
    """Rows before it."""
    healthy_algo: PPOConfig | None = None
    """Settings of the run without it, where the setting is the fault; None: the same."""
    world: Plant = _nothing
    """What is changed in the run without it as well."""
    metrics: tuple[EpisodeMetric, ...] = ()
    """What clients declare of their episodes."""
    num_clients: int = 1


def _poisoned_gradient(attempt: Attempt) -> None:
    """Once: more of them running end the run by themselves."""
    parameter = next(iter(attempt.engine.policy.actor_parameters()))

    def poison(gradient: Any) -> Any:
        hook.remove()
        return gradient * float("nan")

    hook = parameter.register_hook(poison)


def _before_learning(change: Callable[[dict[str, np.ndarray], np.ndarray], None]) -> Plant:
    """Change what is stored of every frame, by name and cell, just before it is learnt from."""

    def plant(attempt: Attempt) -> None:
        learner = attempt.engine.learner
        learn = learner.learn

        def learn_from_changed(storage: Any, cells: np.ndarray, **more: Any) -> Any:
            change(storage.step_state, cells)
            return learn(storage, cells, **more)

        learner.learn = learn_from_changed

    return plant


def _other_log_probs(by: float) -> Plant:
    """What is stored are the log-probabilities of other weights."""

    def change(stored: dict[str, np.ndarray], cells: np.ndarray) -> None:
        stored["log_prob"][cells] += by

    return _before_learning(change)


_NOISE = np.random.default_rng(0)


def _noisy_values(stored: dict[str, np.ndarray], cells: np.ndarray) -> None:
    """A critic that knows nothing and says it loudly."""
    stored["value"][cells] = 1e3 * _NOISE.standard_normal(len(cells))


def _in_environment(change: Callable[[dict[str, Any]], None], every: int = 12) -> Plant:
    """Change what a client's environments say in one of so many steps."""

    def plant(attempt: Attempt) -> None:
        for env in attempt.clients[0].envs:
            step, count = env.step, iter(range(10**9))

            def step_changed(
                actions: np.ndarray, step: Any = step, count: Any = count
            ) -> dict[str, Any]:
                fields = step(actions)
                if next(count) % every == every - 1:
                    change(fields)
                return fields

            env.step = step_changed  # type: ignore[method-assign]

    return plant


def _rewards_shown_before(attempt: Attempt) -> None:
    """Each step pays what its observation showed, so that a critic can know it."""
    for env in attempt.clients[0].envs:
        step = env.step

        def step_paid(actions: np.ndarray, env: Any = env, step: Any = step) -> dict[str, Any]:
            shown = env.x / 89
            return {**step(actions), "rewards": shown}

        env.step = step_paid  # type: ignore[method-assign]


def _telling(metrics: Mapping[str, MetricValue]) -> Plant:
    """Environments say this of every episode that ends."""

    def plant(attempt: Attempt) -> None:
        def change(fields: dict[str, Any]) -> None:
            fields["episodes"] = tuple({**told, "metrics": metrics} for told in fields["episodes"])

        _in_environment(change, every=1)(attempt)

    return plant


def _told(what: str, *told: tuple[str, str, MetricValue, MetricValue]) -> Fault:
    """A fault that shows in what an environment says: name, aggregation, without it and with it."""
    return Fault(
        what,
        _telling({name: faulty for name, _, _, faulty in told}),
        world=_telling({name: healthy for name, _, healthy, _ in told}),
        metrics=tuple(EpisodeMetric(name, "1", "every episode", kind) for name, kind, _, _ in told),
    )


def _nan_metric(attempt: Attempt) -> None:
    learner = attempt.engine.learner
    learn = learner.learn

    def learn_and_say_nan(*arguments: Any, **more: Any) -> dict[str, float]:
        return {**learn(*arguments, **more), "ppo/value_loss": float("nan")}

    learner.learn = learn_and_say_nan


def _writer_that(**fares: Any) -> Plant:
    """How the writer fares from now on."""

    def plant(attempt: Attempt) -> None:
        health = attempt.writer.health
        attempt.writer.health = lambda: replace(  # type: ignore[method-assign]
            health(), **fares
        )
        _pass_time(attempt, 3.0)

    return plant


def _tracker(**fares: Any) -> tuple[TrackerHealth, ...]:
    healthy = TrackerHealth(
        name="t", state="running", logged=0, failed=0, dropped=0, queued=0, last_error=None
    )
    return (replace(healthy, **fares),)


def _nan_reward(fields: dict[str, Any]) -> None:
    fields["rewards"] = fields["rewards"].copy()
    fields["rewards"][0] = np.nan


def _nan_everywhere(fields: dict[str, Any]) -> None:
    fields["rewards"] = np.full_like(fields["rewards"], np.nan)


def _huge_reward(fields: dict[str, Any]) -> None:
    fields["rewards"] = fields["rewards"] + 1e4


def _reconnecting(attempt: Attempt) -> None:
    """Another client comes and is cut in every iteration."""
    learned = attempt.trainer._learned

    def learned_and_cut(*arguments: Any) -> None:
        other = attempt.join(f"flapping-{len(attempt.clients)}", (1,))
        other.vanish()
        learned(*arguments)

    attempt.trainer._learned = learned_and_cut  # type: ignore[method-assign]


def _fleet_that_dwindles(attempt: Attempt) -> None:
    """Four of seven clients are gone after the first iteration, then one more after each."""
    learned = attempt.trainer._learned
    leaving = iter((attempt.clients[:4], attempt.clients[4:5], attempt.clients[5:6]))

    def learned_and_cut(*arguments: Any) -> None:
        for client in next(leaving, ()):
            client.vanish()
        learned(*arguments)

    attempt.trainer._learned = learned_and_cut  # type: ignore[method-assign]


def _one_leaves(attempt: Attempt) -> None:
    attempt.clients[-1].goodbye()


def _one_is_slow(attempt: Attempt) -> None:
    """It answers when it was looked at fifteen times, while the others answer each time."""
    client = attempt.clients[-1]
    pump, count = client.pump, iter(range(10**9))

    def pump_seldom() -> bool:
        attempt.now += 0.01
        return next(count) % 15 == 14 and pump()

    client.pump = pump_seldom  # type: ignore[method-assign]


def _cut_five(attempt: Attempt) -> None:
    for number in range(5):
        attempt.join(f"brief-{number}", (1,)).vanish()
    attempt.now += 6.0


def _lost_frame(attempt: Attempt) -> None:
    attempt.hub.scheduler.ledger.stored_total += 1


def _stale_frame(attempt: Attempt) -> None:
    """One more than there are, in the books alone."""
    ledger = attempt.hub.scheduler.ledger
    ledger._given_up[Discard.STALE] += 1
    ledger.stored_total -= 1


def _slow_batches(attempt: Attempt) -> None:
    _pass_time(attempt, 20.0)


def _pass_time(attempt: Attempt, before_each_answer_s: float) -> None:
    client = attempt.clients[0]
    pump = client.pump

    def pump_late() -> bool:
        attempt.now += before_each_answer_s
        return pump()

    client.pump = pump_late  # type: ignore[method-assign]


def _silence(attempt: Attempt) -> None:
    """The client is there and says nothing."""
    attempt.clients[0].pump = lambda: False  # type: ignore[method-assign]
    attempt.now += 130.0


def _stuck_disk(attempt: Attempt) -> None:
    attempt.writer.busy_s = 31.0
    attempt.now += 6.0


def _no_checkpoints(attempt: Attempt) -> None:
    def refuse(contents: Any, done: Callable[[Any], None]) -> None:
        done(CheckpointWriteError(attempt.writer.directory, "no space left on device"))

    attempt.writer.checkpoint = refuse  # type: ignore[method-assign]


def _full_disk(attempt: Attempt) -> None:
    assert attempt.writer.alarms_of_rows is not None
    attempt.writer.alarms_of_rows._machine = lambda: {"disk/spare_mb": 100.0}


FAULTS: dict[str, Fault] = {
    "illegal_actions": _told(
        "an environment refuses one action in every episode",
        ("illegal_action_rate", "ratio", [0.0, 6.0], [1.0, 6.0]),
    ),
    "elixir_count_inexact": _told(
        "an environment counts inexactly in one episode of ten",
        ("elixir_count_exact_frac", "mean", 1.0, 0.9),
    ),
    "seat_bias": _told(
        "seat 0 of an environment wins every episode",
        ("win_rate_by_seat", "share", [0.5, 1.0], [1.0, 1.0]),
    ),
    "noop_collapse": _told(
        "an environment in which five cards are played in an episode",
        ("policy/cards_per_match", "mean", 22.0, 5.0),
    ),
    "noop_collapse_severe": _told(
        "an environment in which two cards are played in an episode",
        ("policy/cards_per_match", "mean", 22.0, 2.0),
    ),
    "tile_spam": _told(
        "half of the plays of every episode go to one tile",
        ("policy/tile", "count", [1.0] * 20, [20.0] + [1.0] * 20),
    ),
    "artefact_exploit": _told(
        "most plays of every episode are the same pair of card and tile",
        ("policy/card_tile", "categories", list(map(float, range(30))), [7.0] * 30),
    ),
    "draw_equilibrium": _told(
        "every episode is a draw at the limit of steps",
        ("draw_rate", "mean", 0.0, 1.0),
        ("episode_steps_at_cap_frac", "mean", 0.0, 1.0),
    ),
    "shaping_dominates": _told(
        "a term of the reward pays 2 an episode and does not cancel",
        ("reward_shaping_abs", "mean", 0.1, 2.0),
        ("reward_terminal_abs", "mean", 1.0, 1.0),
    ),
    "nonfinite_metric": Fault("the value loss of the row is NaN", _nan_metric),
    "writer_refused": Fault("the disk refuses three lines", _writer_that(unwritten=3)),
    "lines_lost": Fault("three lines are given up", _writer_that(dropped=3)),
    "tracker_failing": Fault("a tracker refuses a row", _writer_that(trackers=_tracker(failed=1))),
    "tracker_stalled": Fault(
        "101 rows wait for a tracker", _writer_that(trackers=_tracker(queued=101))
    ),
    "nonfinite": Fault("a gradient becomes NaN in the network", _poisoned_gradient),
    "ratio_invariant": Fault(
        "stored log-probabilities are 0.01 off those of the weights", _other_log_probs(0.01)
    ),
    "kl_high": Fault("stored log-probabilities are of other weights", _other_log_probs(1.0)),
    "clip_pinned": Fault("stored log-probabilities are of other weights", _other_log_probs(1.0)),
    "kl_dead": Fault(
        "a learning rate of 1e-12",
        _nothing,
        replace(CALM, learning_rate=1e-12),
        healthy_algo=CALM,
    ),
    "ev_negative": Fault("the critic predicts noise", _before_learning(_noisy_values)),
    "reward_clipped": Fault(
        "now and then the environment pays 10,000 more", _in_environment(_huge_reward), SCALED
    ),
    "actor_handoff": Fault(
        "a learning rate of 0.5 once the freeze is over", _nothing, HASTY, healthy_algo=FROZEN
    ),
    "critic_unready": Fault(
        "the critic predicts noise when the freeze is over",
        _before_learning(_noisy_values),
        TAUGHT,
        healthy_rows=11,
        world=_rewards_shown_before,
    ),
    "worker_failures": Fault("a connection is cut in every iteration", _reconnecting),
    "worker_failures_persistent": Fault(
        "of seven clients four are lost at once, and one more in each iteration",
        _fleet_that_dwindles,
        num_clients=7,
    ),
    "clients_missing": Fault("one of two clients says goodbye", _one_leaves, num_clients=2),
    "straggler": Fault(
        "one of three clients answers fifteen times slower", _one_is_slow, num_clients=3
    ),
    "client_flapping": Fault("five connections are cut", _cut_five),
    "invalid_frames": Fault("now and then a reward is NaN", _in_environment(_nan_reward)),
    "discards": Fault(
        "in every third step all rewards are NaN", _in_environment(_nan_everywhere, every=3)
    ),
    "frames_not_conserved": Fault("one frame too many is written into the books", _lost_frame),
    "impossible_discards": Fault("a stale frame is written into the books", _stale_frame),
    "queue_starved": Fault("the client answers after 20 s", _slow_batches),
    "stalled": Fault("the client says nothing for 130 s", _silence),
    "writer_stalled": Fault("the disk keeps one line waiting for 31 s", _stuck_disk),
    "checkpoint_overdue": Fault("the disk refuses every checkpoint", _no_checkpoints),
    "disk_low": Fault("100 MB are left on the disk", _full_disk),
}
"""By alarm."""
