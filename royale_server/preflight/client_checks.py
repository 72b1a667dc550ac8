"""The checks once the first client has said hello. Pure: they judge `ClientFacts`, touch nothing.

What an environment does was tried by its client; what the policy means by an action was composed by
the policy. Here the two are compared, number by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from royale_client.wire.probes import LAYOUT, LEGALITY, WAITING, ProbeAnswer
from royale_server.preflight.check import Check, Phase
from royale_server.preflight.facts import (
    MIB,
    ClientFacts,
    EnvironmentFacts,
    MinibatchSetting,
)
from royale_server.preflight.finding import Finding, Level
from royale_server.preflight.ledger import ledger
from royale_server.preflight.start_checks import disk_findings

if TYPE_CHECKING:
    from royale_server.preflight.facts import IntArray

SHOWN = 8
"""Disagreeing actions, states and layout entries that are told."""
WARN_WITHIN = 4.0
"""A predicted ratio deviation this close to its tolerance is told."""


def waiting_action(layout: IntArray | None) -> int | None:
    """Return the one action that waits by a layout; None if there is none, or more than one."""
    if layout is None:
        return None
    waits = np.flatnonzero((layout == -1).all(axis=1))
    return int(waits[0]) if len(waits) == 1 else None


def next_legal_minibatch(size: int, batch: int) -> int | None:
    """Return the largest smaller size that divides a gradient step; None if there is none."""
    return next((n for n in range(min(size - 1, batch), 0, -1) if batch % n == 0), None)


def _action_layout(facts: ClientFacts) -> Iterator[Finding]:
    environment, model = facts.environment, facts.model
    if environment is None or LAYOUT in environment.failures:
        yield _not_asked("action-layout", environment)
        return
    answer = environment.answers.get(LAYOUT)
    ours = None if model is None else model.layout
    if answer is None or answer.layout is None or ours is None:
        return
    theirs = answer.layout
    if theirs.shape != ours.shape:
        yield Finding(
            check="action-layout",
            level=Level.FAIL,
            where=environment.env_id,
            what="the environment describes its actions in other parts than the policy",
            got=f"{theirs.shape[0]} actions of {', '.join(answer.columns)}",
            expected=f"{ours.shape[0]} actions of {ours.shape[1]} parts",
            remedy="train this environment with a policy that is made for its actions",
        )
        return
    wrong = np.flatnonzero((theirs != ours).any(axis=1))
    if len(wrong):
        yield Finding(
            check="action-layout",
            level=Level.FAIL,
            where=environment.env_id,
            what=f"{len(wrong)} of {len(ours)} actions do something else in the environment than "
            "the policy means",
            remedy="bring the order of the environment's actions and of the policy's head into "
            "line",
            details=tuple(
                f"action {a}: the policy means {_parts(answer, ours[a])}, the environment did "
                f"{_parts(answer, theirs[a])}"
                for a in wrong[:SHOWN].tolist()
            ),
        )


def _parts(answer: ProbeAnswer, row: IntArray) -> str:
    if (row == -1).all():
        return "nothing"
    return ", ".join(
        f"{name} {part}" for name, part in zip(answer.columns, row.tolist(), strict=True)
    )


def _noop(facts: ClientFacts) -> Iterator[Finding]:
    environment = facts.environment
    if environment is None or WAITING in environment.failures:
        yield _not_asked("no-op", environment)
        return
    answer = environment.answers.get(WAITING)
    if answer is None or answer.masks is None:
        return
    waits = waiting_action(None if facts.model is None else facts.model.layout)
    legal = answer.masks if waits is None else answer.masks[:, [waits]]
    legal = np.logical_or.reduce(legal, axis=1)
    wrong = np.flatnonzero(~legal)
    if len(wrong):
        what = "no action is legal" if waits is None else f"waiting (action {waits}) is not legal"
        yield Finding(
            check="no-op",
            level=Level.FAIL,
            where=f"{environment.env_id}, its masks",
            what=f"{what} in {len(wrong)} of {len(legal)} sampled states",
            remedy="correct the mask: a state without a legal action has no distribution, and the "
            "first backward pass makes NaN of it",
            details=tuple(answer.states[k] for k in wrong[:SHOWN].tolist()),
        )


def _mask_agreement(facts: ClientFacts) -> Iterator[Finding]:
    environment = facts.environment
    if environment is None or LEGALITY in environment.failures:
        yield _not_asked("mask-agreement", environment)
        return
    answer = environment.answers.get(LEGALITY)
    if answer is None or answer.masks is None or answer.verdicts is None:
        return
    states, actions = np.nonzero(answer.masks != answer.verdicts)
    if len(states):
        layout = environment.answers.get(LAYOUT)
        yield Finding(
            check="mask-agreement",
            level=Level.FAIL,
            where=f"{environment.env_id}, its masks",
            what=f"mask and environment disagree about {len(states)} of {answer.masks.size} "
            f"actions, in {len(np.unique(states))} of {len(answer.states)} states",
            remedy="correct the mask or the rules: a policy trained under a wrong mask is "
            "worthless",
            details=tuple(
                _disagreement(answer, layout, s, a)
                for s, a in zip(states[:SHOWN].tolist(), actions[:SHOWN].tolist(), strict=True)
            ),
        )


def _disagreement(answer: ProbeAnswer, layout: ProbeAnswer | None, state: int, action: int) -> str:
    assert answer.masks is not None
    parts = ""
    if layout is not None and layout.layout is not None:
        parts = f" ({_parts(layout, layout.layout[action])})"
    says, did = ("legal", "refused") if answer.masks[state, action] else ("illegal", "carried out")
    return (
        f"{answer.states[state]}: action {action}{parts}: the mask says {says}, the environment "
        f"{did} it"
    )


def _not_asked(check: str, environment: EnvironmentFacts | None) -> Finding:
    """Nobody to ask, or somebody who could not tell, which another check tells."""
    nobody = "no client has come so far"
    what = nobody if environment is None else "the environment could not be asked"
    return Finding(check=check, level=Level.SKIP, what=what)


def _client_up(facts: ClientFacts) -> Iterator[Finding]:
    environment = facts.environment
    if environment is not None and environment.failures:
        questions = ", ".join(environment.failures)
        yield Finding(
            check="client-up",
            level=Level.FAIL,
            where=f"client {environment.client!r}, {environment.env_id}",
            what=f"its environment did not come up: it has no answer to {questions}",
            remedy="correct the environment, or start the client on a build that works",
            details=tuple(dict.fromkeys(environment.failures.values())),
        )


def _digest(facts: ClientFacts) -> Iterator[Finding]:
    environment = facts.environment
    if environment is not None and not environment.env_digest:
        yield Finding(
            check="environment-build",
            level=Level.WARN,
            where=f"client {environment.client!r}, {environment.env_id}",
            what="its hello has no env_digest: whether clients run the same build cannot be told",
            remedy="give the client library a digest of the environment's version and settings",
        )


def _probes(facts: ClientFacts) -> Iterator[Finding]:
    environment = facts.environment
    if environment is not None and environment.has_masks and not environment.answers_probes:
        yield Finding(
            check="probes",
            level=Level.WARN,
            where=f"client {environment.client!r}, {environment.env_id}",
            what="its masks cannot be checked: the environment answers no probes",
            remedy="give its driver a probe method (ProbedDriver)",
        )


def _memory(facts: ClientFacts) -> Iterator[Finding]:
    if facts.model is None:
        return
    book = ledger(facts)
    if book is None:
        yield Finding(
            check="memory",
            level=Level.WARN,
            what="what this process takes cannot be told on this system",
            remedy="look for yourself",
        )
        return
    parts = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in book.parts.items())
    budget, available = facts.ram_budget_mb, facts.model.available_bytes
    if budget is not None and book.total > budget * MIB:
        yield Finding(
            check="memory",
            level=Level.FAIL,
            where="--doctor.ram-budget-mb",
            what="the run would take more memory than its budget",
            got=f"{book.total / MIB:,.0f} MB ({parts})",
            expected=f"at most {budget:,} MB",
            remedy="lower --algo.frames-per-iteration, --max-slots or the clients' environments, "
            "or raise the budget",
        )
    elif available is not None and book.growth > available:
        yield Finding(
            check="memory",
            level=Level.WARN,
            what="the run will take more memory than is free now",
            got=f"{book.growth / MIB:,.0f} MB still to come, {available / MIB:,.0f} MB free",
            remedy="something else may stop before the run needs it; else lower "
            "--algo.frames-per-iteration or --max-slots",
        )


def _minibatch(facts: ClientFacts) -> Iterator[Finding]:
    rehearsal = None if facts.model is None else facts.model.rehearsal
    setting = facts.minibatch
    if rehearsal is None:
        return
    if rehearsal.failure is not None:
        yield Finding(
            check="minibatch",
            level=Level.FAIL,
            where=f"a gradient step of {rehearsal.frames:,} frames",
            what=f"it could not be taken: {rehearsal.failure}",
            remedy=_smaller(setting),
        )
        return
    free, peak = rehearsal.device_free_bytes, rehearsal.device_peak_bytes
    if free is None or peak is None or facts.vram_headroom_mb == 0:
        return
    needed = peak + rehearsal.held_bytes + facts.vram_headroom_mb * MIB
    if needed > free:
        yield Finding(
            check="minibatch",
            level=Level.FAIL,
            where=f"a minibatch of {rehearsal.frames:,} frames",
            what="one does not fit into what the driver reports free",
            got=f"a peak of {peak / MIB:,.0f} MB, {rehearsal.held_bytes / MIB:,.0f} MB for "
            f"optimizer and frames, {facts.vram_headroom_mb:,} MB headroom",
            expected=f"at most {free / MIB:,.0f} MB",
            remedy=_smaller(setting),
            details=(
                "some drivers would not fail: they back the device with memory of the host and "
                "slow every update down for the rest of the run",
            ),
        )


def _smaller(setting: MinibatchSetting | None) -> str:
    smaller = None if setting is None else next_legal_minibatch(setting.size, setting.batch)
    if setting is None or smaller is None:
        return "use a smaller network, or a device with more memory"
    if setting.is_only_memory:
        return f"the next legal size is --algo.minibatch-size {smaller}"
    return (
        f"the next legal size is --algo.batch-size {setting.batch} --algo.minibatch-size {smaller}"
        ", which computes the same"
    )


def _ratio(facts: ClientFacts) -> Iterator[Finding]:
    rehearsal = None if facts.model is None else facts.model.rehearsal
    if facts.model is None or rehearsal is None or rehearsal.ratio_deviation is None:
        return
    deviation, tolerance = rehearsal.ratio_deviation, facts.model.ratio_tolerance
    if WARN_WITHIN * deviation <= tolerance:
        return
    beyond = not deviation <= tolerance  # also where it is not a number
    yield Finding(
        check="ratio-precision",
        level=Level.FAIL if beyond else Level.WARN,
        where=f"{rehearsal.frames:,} made-up frames",
        what="acting and learning disagree about the same actions under the same weights"
        if beyond
        else "acting and learning nearly disagree: a more decided policy will",
        got=f"a probability ratio off by {deviation:.3g}",
        expected=f"at most {tolerance:.3g}",
        remedy="act in full precision (--policy.precision float32)",
    )


def _disk(facts: ClientFacts) -> Iterator[Finding]:
    if facts.model is not None and facts.disk_free_bytes is not None:
        yield from disk_findings(
            "checkpoint-room",
            str(facts.disk_folder),
            facts.disk_free_bytes,
            facts.model.checkpoint_bytes,
        )


def _check(
    name: str,
    looks_at: str,
    *,
    why: str,
    cure: str,
    judge: Callable[[ClientFacts], Iterable[Finding]],
    refuses: str = "",
    warns: str = "",
    machine: bool = False,
) -> Check[ClientFacts]:
    return Check(
        name=name,
        phase=Phase.CLIENT,
        looks_at=looks_at,
        refuses=refuses,
        warns=warns,
        why=why,
        cure=cure,
        judge=judge,
        needs_machine=machine,
    )


CLIENT_CHECKS: tuple[Check[ClientFacts], ...] = (
    _check(
        "environment-build",
        "the digest of version and settings in each client's hello",
        refuses="a client's differs from the first one's, also when a client comes back: that "
        "client is refused, the run goes on (--mixed-environments declares that they may)",
        warns="a hello has none",
        why="One client on an older build feeds another game into the same policy.",
        cure="Start every client from the same build, with the same arguments and wrappers.",
        judge=_digest,
    ),
    _check(
        "client-up",
        "that the first client's environment works at all, as far as it can be asked",
        refuses="it raises; the message has the client's words. A client that fails before its "
        "first step is told of by name, and one that is silent is sent away after "
        "--first-step-timeout",
        why="A run that waits for a client that has died looks like one that is slow to start.",
        cure="Look at that client's log; correct its environment.",
        judge=_client_up,
    ),
    _check(
        "probes",
        "that an environment with masks answers probes",
        warns="it does not: its masks are taken on trust",
        why="A check that could not be made must not look like one that passed.",
        cure="Give its driver a probe method.",
        judge=_probes,
    ),
    _check(
        "action-layout",
        "every action: what the policy's head means by it, and what it did when it was tried",
        refuses="one of them differs",
        why="A transposed index is a policy that plays another card in another place than it "
        "learnt.",
        cure="Bring the order of the environment's actions and of the policy's head into line.",
        judge=_action_layout,
    ),
    _check(
        "no-op",
        "that waiting is legal in 1,000 states that play leads to, ended episodes among them",
        refuses="it is not in one of them",
        why="A state without a legal action makes NaN of the first backward pass.",
        cure="Correct the mask in the kind of state that is named.",
        judge=_noop,
    ),
    _check(
        "mask-agreement",
        "every action from both seats in states of the environment's choice, mask against trial; "
        "in the arena every card on every tile under four states of the towers",
        refuses="mask and environment disagree about one",
        why="A policy trained under a wrong mask is worthless, and no curve shows it.",
        cure="Correct the mask or the rules; the message has the first eight actions.",
        judge=_mask_agreement,
    ),
    _check(
        "memory",
        "process, storage, learning and slots, measured, against --doctor.ram-budget-mb",
        refuses="the sum is over the budget",
        warns="what is still to come is more than is free now",
        why="The machine kills a run that grows too large, and rarely at a good moment.",
        cure="Lower --algo.frames-per-iteration, --max-slots or the number of environments.",
        judge=_memory,
        machine=True,
    ),
    _check(
        "minibatch",
        "one real forward and backward pass at the real size against what the driver reports "
        "free, with --doctor.vram-headroom-mb",
        refuses="it fails, or peak and headroom are more than was free before",
        why="Some drivers do not refuse: they use the host's memory, and every update is several "
        "times slower for the rest of the run.",
        cure="Take the next legal --algo.minibatch-size, which the message computes.",
        judge=_minibatch,
        machine=True,
    ),
    _check(
        "ratio-precision",
        "log-probabilities of acting against those of learning, with the same weights",
        refuses="the ratio is off by more than the precision allows",
        warns="it is within a factor of four of that",
        why="Rounding that looks like a changed policy is trained on like one.",
        cure="Act in full precision.",
        judge=_ratio,
    ),
    _check(
        "checkpoint-room",
        "room for two checkpoints, now that the size of one is known",
        refuses="there is less",
        why="A disk that fills up at hour nine keeps the last checkpoint from being written.",
        cure="Free some space, or choose another --checkpoint-base-dir.",
        judge=_disk,
        machine=True,
    ),
)
"""In the order in which they are told."""
