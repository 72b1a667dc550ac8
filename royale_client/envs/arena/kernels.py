"""One decision of N battles: both seats' plays, then five ticks.

The order within a tick, which every tie depends on and which treats both seats alike:

1. Elixir flows.
2. Positions are written down; from here on everybody aims at those.
3. Units of both seats count down (stun, else deploying, else cooldown), choose, attack or walk;
   damage waits.
4. Towers of both seats likewise.
5. Spells of both seats count down and land.
6. Damage and stuns arrive, lifetimes pass, the dead leave, for both seats.
7. Buildings that are still there let units out, for both seats.
8. The clock moves on, and the end is looked for.

Nothing here draws a random number or knows which seat is which.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from royale_client.envs.arena import layout, rules, scratch
from royale_client.envs.arena.actors import towers_act, units_act
from royale_client.envs.arena.compiled import compiled, inlined
from royale_client.envs.arena.effects import damage_arrives, spawns_leave, spells_land
from royale_client.envs.arena.layout import HEAD_WORDS, SEAT_WORDS
from royale_client.envs.arena.plays import play
from royale_client.envs.arena.scratch import begin_decision, begin_tick
from royale_client.envs.arena.state import Battles


def step(battles: Battles, actions: ArrayLike) -> None:
    """Move every running battle on by one decision, in place; the others stay as they are.

    What became of the actions stands in ``battles.play_status``; a refused one is a no-op.

    Args:
        battles: N of them.
        actions: ``(N, 2)``, integers; a seat's own frame.

    Raises:
        ValueError: The actions have another shape or are no integers.
    """
    given = np.asarray(actions)
    expected = (len(battles.raw), rules.SEATS)
    if given.shape != expected or given.dtype.kind not in "iu":
        raise ValueError(f"actions {given.shape}, {given.dtype}: expected integers, {expected}")
    step_rows(battles.raw, np.ascontiguousarray(given, np.int32))


@compiled
def step_rows(raw: NDArray[np.int32], actions: NDArray[np.int32]) -> None:
    """Do what `step` does, for kernels: rows ``(N, ROW_WORDS)``, actions ``(N, 2)`` int32."""
    notes = np.empty((rules.SEATS, scratch.SCRATCH_WORDS), np.int32)
    for i in range(len(raw)):
        head = raw[i, :HEAD_WORDS]
        seats = raw[i, HEAD_WORDS:].reshape(rules.SEATS, SEAT_WORDS)
        if head[layout.OUTCOME] != rules.RUNNING:
            for s in range(rules.SEATS):
                seats[s, layout.PLAY_STATUS] = rules.PLAY_NONE
            continue
        for s in range(rules.SEATS):
            # What one seat plays changes nothing that the other's play depends on.
            _act(seats[s], seats[1 - s], head[layout.TICK], actions[i, s])
            begin_decision(seats[s], notes[s])
        for _ in range(rules.TICKS_PER_DECISION):
            _tick(head, seats, notes)
            if head[layout.OUTCOME] != rules.RUNNING:
                break


@inlined
def _act(own: NDArray[np.int32], foe: NDArray[np.int32], tick: int, action: int) -> None:
    """Begin a decision of one seat: a new view of stuns, elixir about to be lost, a play."""
    own[layout.UNIT_STUNNED : layout.UNIT_STUNNED + rules.UNIT_SLOTS] = 0
    own[layout.TOWER_STUNNED : layout.TOWER_STUNNED + rules.TOWERS] = 0
    if own[layout.ELIXIR] == rules.ELIXIR_CAP:
        own[layout.LEAK_DECISIONS] += 1
    status = play(own, foe, tick, action)
    own[layout.PLAY_STATUS] = status
    if status > rules.PLAY_DONE:
        own[layout.REFUSED] += 1


@compiled
def _tick(head: NDArray[np.int32], seats: NDArray[np.int32], notes: NDArray[np.int32]) -> None:
    """Play one tick. Each loop ends before the next may see what it wrote: no seat is first."""
    tick = head[layout.TICK]
    for s in range(rules.SEATS):
        _elixir_flows(seats[s], tick)
        begin_tick(seats[s], notes[s])
    for s in range(rules.SEATS):
        units_act(seats[s], seats[1 - s], notes[s], notes[1 - s], tick)
        towers_act(seats[s], seats[1 - s], notes[1 - s], tick)
        spells_land(seats[s], notes[s], notes[1 - s])
    for s in range(rules.SEATS):
        damage_arrives(seats[s], seats[1 - s], notes[s], notes[1 - s])
    for s in range(rules.SEATS):
        spawns_leave(seats[s], notes[s])
    head[layout.TICK] = tick + 1
    head[layout.OUTCOME] = _outcome(seats[0], seats[1], tick + 1)


@inlined
def _elixir_flows(own: NDArray[np.int32], tick: int) -> None:
    gain = 1 if tick < rules.DOUBLE_ELIXIR_TICK else 2
    own[layout.ELIXIR] = min(own[layout.ELIXIR] + gain, rules.ELIXIR_CAP)
    own[layout.COUNTED_ELIXIR] = min(own[layout.COUNTED_ELIXIR] + gain, rules.ELIXIR_CAP)


@inlined
def _outcome(one: NDArray[np.int32], two: NDArray[np.int32], tick: int) -> int:
    """Return whether and how the battle has ended.

    A fallen keep is three crowns, so both keeps in one tick are three each: a draw.
    """
    keep = layout.TOWER_HP + rules.KEEP
    is_keep_down = one[keep] == 0 or two[keep] == 0
    if not is_keep_down and tick < rules.REGULATION_TICKS:
        return rules.RUNNING
    lead = one[layout.CROWNS] - two[layout.CROWNS]
    if lead == 0 and not is_keep_down:
        if tick < rules.CAP_TICKS:
            return rules.RUNNING
        lead = _weakest_tower(one) - _weakest_tower(two)
    if lead == 0:
        return rules.DRAWN
    return rules.SEAT_0_WON if lead > 0 else rules.SEAT_1_WON


@inlined
def _weakest_tower(own: NDArray[np.int32]) -> int:
    """Return the hit points of the weakest tower that still stands."""
    weakest = own[layout.TOWER_HP + rules.KEEP]
    for t in range(1, rules.TOWERS):
        hp = own[layout.TOWER_HP + t]
        if 0 < hp < weakest:
            weakest = hp
    return int(weakest)
