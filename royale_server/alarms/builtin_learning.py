"""The alarms about the harness, the update and the machine under them. Declarations only."""

from __future__ import annotations

from royale_server.alarms.conditions import (
    AboveFull,
    AfterThaw,
    Exceeds,
    OutsideBand,
    Rose,
    SlowerThanBest,
    Together,
    above,
    at_least,
    below,
)
from royale_server.alarms.declaration import Alarm

BROKEN = "Something is broken"
MACHINE = "The machine is the problem"
UPDATE = "The update is going wrong"
BEHAVIOUR = "The behaviour is going wrong"
LADDER = "The ladder says nothing"
FREEZE = "The freeze"

_EVERY_DECISION = "all decisions of the learner's seats in episodes that ended in the iteration"
_ENDED = "episodes of the learner's seats that ended in the iteration"
_BATTLES = "battles with a winner that ended in the iteration, whoever played them"
_ACTOR = "frames that the actor was trained on"
_ITERATION = "the iteration"
_PLAYS = "plays of the learner's seats in episodes that ended in the iteration"

LEARNING_ALARMS: tuple[Alarm, ...] = (
    Alarm(
        name="illegal_actions",
        group=BROKEN,
        when=above("env/illegal_action_rate", 0.0),
        population=_EVERY_DECISION,
        severity="halt",
        patience=1,
        meaning="The environment refused an action that its mask allowed.",
        remedy="Tune nothing: mask, action encoding or policy disagree. Read the bundle's episode, "
        "then let `royale doctor` compare mask and environment.",
    ),
    Alarm(
        name="ratio_invariant",
        group=BROKEN,
        when=above("ppo/ratio_max_abs_dev", "ratio_invariant_multiple", "ratio_atol"),
        population="first minibatch of the first pass, before anything was learnt",
        severity="halt",
        patience=1,
        meaning="The stored log-probabilities are not those of the weights that collected.",
        remedy="Leave the learning rate alone: masks, preprocessing or weight versions differ "
        "between acting and learning. The bundle has the worst cells and what is in them.",
    ),
    Alarm(
        name="nonfinite",
        group=BROKEN,
        when=above("health/nan_guard_trips", 0.0),
        population="gradient steps of the iteration",
        severity="halt",
        patience=1,
        meaning="A loss or a gradient was not finite; the step was skipped.",
        remedy="Look for a state without a legal action, a reward that is not finite or huge, or a "
        "learning rate that blows up in one step; a reward of your own first.",
    ),
    Alarm(
        name="buffer_overflow",
        group=BROKEN,
        when=AboveFull("health/buffer_fill_frac", "buffer_fill_frac"),
        population="cells of rollout storage",
        severity="halt",
        patience=1,
        meaning="Storage holds more frames than it has cells, so some were written twice.",
        remedy="No setting causes this. Keep the bundle and report it as a defect of the server.",
    ),
    Alarm(
        name="elixir_count_inexact",
        group=BROKEN,
        when=below("env/elixir_count_exact_frac", "elixir_count_exact"),
        population=_ENDED,
        severity="warn",
        patience=3,
        meaning="What a seat counts of its enemy's elixir is called exact, and was not.",
        remedy="Compare the environment's digest in `identity.json` with the one you mean to run: "
        "a value near 0 is another build, one just below 1 a missed play.",
    ),
    Alarm(
        name="seat_bias",
        group=BROKEN,
        when=OutsideBand(
            "env/win_rate_by_seat_ci95_lo",
            "env/win_rate_by_seat_ci95_hi",
            "seat_low",
            "seat_high",
        ),
        population=_BATTLES,
        severity="warn",
        patience=3,
        meaning="One seat wins more than chance and the rules explain.",
        remedy="In this order: a reset without its seed, a reward that is not symmetric, an "
        "observation that is not mirrored.",
    ),
    Alarm(
        name="worker_failures",
        group=MACHINE,
        when=Rose(("health/worker_restarts",)),
        population="clients that train, since this start of the server",
        severity="warn",
        patience=1,
        meaning="A client was lost without a goodbye.",
        remedy="One is survived: its open frames are thrown away. Read its log, and look what else "
        "runs on its machine; memory is the usual cause.",
    ),
    Alarm(
        name="worker_failures_persistent",
        group=MACHINE,
        when=Together(
            (
                Rose(("health/worker_restarts",)),
                above("health/workers_gone_frac", "workers_gone_share"),
            )
        ),
        population="clients that train, since this start of the server",
        severity="halt",
        patience=3,
        meaning="Clients were lost in three iterations running, and most of them did not come "
        "back.",
        remedy="This does not pass by itself. `events.jsonl` names the clients and why each was "
        "lost; cure that, then resume.",
    ),
    Alarm(
        name="vram_spilling",
        group=MACHINE,
        when=SlowerThanBest(
            "time/update", "spill_slowdown", "health/vram_driver_free_mb", "spill_free_mb"
        ),
        population=_ITERATION,
        severity="warn",
        patience=3,
        meaning="Updates take a multiple of the run's own best while the device is full: memory is "
        "served by the host.",
        remedy="End what else uses the device, or lower `--algo.minibatch-size`.",
    ),
    Alarm(
        name="capacity_ratio",
        group=MACHINE,
        when=below("throughput/rollout_capacity_ratio", "capacity_ratio"),
        population="iterations that learn for a second or longer, less what the server itself "
        "took to infer and to store",
        severity="warn",
        patience=3,
        meaning="Clients deliver too slowly: learning waits for them about as long as it takes.",
        remedy="Add clients, or environments per client, where memory and cores allow. Where an "
        "environment is slow by nature, as a robot, disable it.",
    ),
    Alarm(
        name="clip_pinned",
        group=UPDATE,
        when=above("ppo/clip_fraction", "clip_fraction"),
        population=_ACTOR,
        severity="halt",
        patience=3,
        meaning="Most frames hit the clip: training goes on and produces nothing.",
        remedy="First let `royale doctor` check the mask: near 1 it is a bug. Otherwise the "
        "learning rate is far too high.",
    ),
    Alarm(
        name="kl_high",
        group=UPDATE,
        when=above("ppo/kl", "kl_high"),
        population=_ACTOR,
        severity="warn",
        patience=3,
        meaning="The policy moves further in one update than it should.",
        remedy="`ppo/lr_backoff_events` says whether `--algo.lr-backoff-kl` acts already; if it "
        "does, raise `--algo.batch-size`, else lower the learning rate.",
    ),
    Alarm(
        name="kl_dead",
        group=UPDATE,
        when=below("ppo/kl", "kl_dead"),
        population=_ACTOR,
        severity="warn",
        patience=10,
        meaning="The policy does not move at all.",
        remedy="Look at `ppo/entropy` and `ppo/learning_rate`: a collapsed policy, a rate that has "
        "run out, or weights that do not get a gradient.",
    ),
    Alarm(
        name="ev_negative",
        group=UPDATE,
        when=below("ppo/explained_variance", "explained_variance"),
        population="every frame that was trained on",
        severity="warn",
        patience=50,
        meaning="The critic explains none of the returns, long after the start.",
        remedy="The likeliest reason for a run that has stopped changing: check the scale of "
        "rewards, the critic's learning rate, and whether it sees what decides the return.",
    ),
    Alarm(
        name="noop_collapse",
        group=BEHAVIOUR,
        when=below("policy/cards_per_match", "cards_per_match_warn"),
        population=_ENDED,
        severity="warn",
        patience=5,
        meaning="The policy hardly plays cards any more.",
        remedy="Raise `--algo.noop-ent-coef` or let it decay later.",
    ),
    Alarm(
        name="noop_collapse_severe",
        group=BEHAVIOUR,
        when=below("policy/cards_per_match", "cards_per_match_halt"),
        population=_ENDED,
        severity="halt",
        patience=5,
        meaning="The policy has stopped playing cards.",
        remedy="Go back to a checkpoint before `noop_collapse`, with a larger "
        "`--algo.noop-ent-coef`.",
    ),
    Alarm(
        name="noop_entropy_floor",
        group=BEHAVIOUR,
        when=below("ppo/noop_entropy", "noop_entropy_floor"),
        population="frames trained on with more than one legal action",
        severity="warn",
        patience=5,
        meaning="Whether to act is no longer a question to the policy; a collapse often follows.",
        remedy="Raise `--algo.noop-ent-coef`, before `noop_collapse` fires.",
    ),
    Alarm(
        name="tile_spam",
        group=BEHAVIOUR,
        when=above("policy/tile_top1_share", "tile_top1_share"),
        population=_PLAYS,
        severity="warn",
        patience=5,
        meaning="Too many cards go to one tile.",
        remedy="Watch a battle (`royale replay`): a degenerate policy, or a quirk of the game that "
        "pays.",
    ),
    Alarm(
        name="artefact_exploit",
        group=BEHAVIOUR,
        when=above("policy/card_tile_top10_share", "card_tile_top10_share"),
        population=_PLAYS,
        severity="warn",
        patience=5,
        dump=True,
        meaning="Ten pairs of card and tile hold half of all plays: rather an artefact of the game "
        "than a strategy.",
        remedy="The bundle holds an episode to watch; if a rule is exploited, change the rule.",
    ),
    Alarm(
        name="draw_equilibrium",
        group=BEHAVIOUR,
        when=Together(
            (
                above("env/draw_rate", "draw_rate"),
                above("env/episode_steps_at_cap_frac", "at_cap_frac"),
            )
        ),
        population=_ENDED,
        severity="warn",
        patience=5,
        meaning="Nobody attacks, and the limit of steps ends every battle.",
        remedy="Usually the reward: nothing in it pays for committing. Look at its shaping.",
    ),
    Alarm(
        name="reward_clipped",
        group=BEHAVIOUR,
        when=above("ppo/reward_clip_frac", 0.0),
        population="every frame of the iteration",
        severity="warn",
        patience=1,
        meaning="A scaled reward was cut, so a return is no longer the return.",
        remedy="Raise `--algo.scaled-reward-clip`, or lower the weights of shaping you raised.",
    ),
    Alarm(
        name="shaping_dominates",
        group=BEHAVIOUR,
        when=Exceeds("env/reward_shaping_abs", "env/reward_terminal_abs"),
        population=_ENDED,
        severity="warn",
        patience=5,
        meaning="Shaping adds up to more than the goal over an episode: a term does not cancel.",
        remedy="No weight cures it. Find the term that is no difference of a potential: "
        "`env/reward_terms_abs/*` beside `env/reward_terms_step_abs/*`.",
    ),
    Alarm(
        name="transitivity",
        group=LADDER,
        when=above("ladder/transitivity_residual", "transitivity_residual"),
        population="pairs of players with enough battles",
        severity="warn",
        patience=3,
        meaning="One number a player does not explain who beats whom: ratings mislead.",
        remedy="Look at the table of pairs instead of the rating.",
    ),
    Alarm(
        name="gate_starved",
        group=LADDER,
        when=at_least("ladder/consecutive_gate_failures", "gate_failures"),
        population="gates of the run",
        severity="warn",
        patience=1,
        meaning="No new snapshot passes the gate: a plateau.",
        remedy="Information, not a fault: decide whether to end the run or to change something.",
    ),
    Alarm(
        name="actor_handoff",
        group=FREEZE,
        when=AfterThaw(
            (
                above("ppo/kl", "handoff_kl"),
                above("ppo/clip_fraction", "handoff_clip_fraction"),
            ),
            "ppo/iterations_since_unfreeze",
            "handoff_window",
        ),
        population=_ACTOR,
        severity="warn",
        patience=1,
        meaning="The first updates after the freeze move the policy fast.",
        remedy="`--algo.lr-backoff-kl` acts by itself; a longer freeze or a lower rate helps the "
        "next run.",
    ),
    Alarm(
        name="critic_unready",
        group=FREEZE,
        when=below("ppo/ev_at_unfreeze", "unfreeze_explained_variance"),
        population="frames of the first learn step after the freeze",
        severity="warn",
        patience=1,
        meaning="The actor was let go while the critic explained little.",
        remedy="Freeze longer: `--algo.freeze-actor-iterations` or `--algo.freeze-actor-until`.",
    ),
)
"""In the order in which they are listed."""
