"""What happens in a battle, by the rules: each expected number is worked out beside it."""

import numpy as np
import pytest

from royale_client.envs.arena import rules
from royale_client.envs.arena.cards import BUILDING, CARD_IDS, CARDS, KIND, SPELL, TROOP
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.state import Battles
from royale_client.envs.arena.territory import ZONES, can_deploy

WAIT = [[0, 0]]


@pytest.fixture
def battle(deal) -> Battles:
    """One battle at its start, in which nobody has played."""
    return deal(1)


def put(battle: Battles, seat: int, name: str, x: int, y: int) -> int:
    """Put a unit that is ready to act on the board, in the seat's own frame; return its slot."""
    card = CARDS[CARD_IDS[name]]
    slot = int(np.flatnonzero(battle.unit_card[0, seat] < 0)[0])
    battle.unit_card[0, seat, slot] = CARD_IDS[name]
    battle.unit_hp[0, seat, slot] = card.hp
    battle.unit_x[0, seat, slot], battle.unit_y[0, seat, slot] = x, y
    battle.unit_target[0, seat, slot] = rules.LOST_TARGET
    battle.unit_life[0, seat, slot] = card.lifetime
    return slot


def silence_towers(battle: Battles) -> None:
    """Let no tower shoot for the next hundred ticks."""
    battle.tower_cooldown[0] = 100


def cast(battle: Battles, seat: int, name: str, x: int, y: int) -> None:
    """Put a spell on its way, aimed in the seat's own frame."""
    card = CARDS[CARD_IDS[name]]
    battle.spell_card[0, seat, 0] = CARD_IDS[name]
    battle.spell_x[0, seat, 0], battle.spell_y[0, seat, 0] = x, y
    battle.spell_delay[0, seat, 0] = card.delay


def hand_out(battle: Battles, seat: int, name: str) -> None:
    """Give a seat a card as the first of its hand, and the elixir for it."""
    battle.hand[0, seat, 0] = CARD_IDS[name]
    battle.elixir[0, seat] = rules.ELIXIR_CAP


def wait(battle: Battles, decisions: int) -> None:
    for _ in range(decisions):
        step(battle, WAIT)


def at(column: int, row: int) -> int:
    """Return the action that plays the first card of the hand on a tile."""
    return 1 + row * rules.WIDTH + column


# ------------------------------------------------------------------------------------- the tables


def test_there_are_sixteen_cards_of_different_names():
    assert len({card.name for card in CARDS}) == 16


def test_every_card_has_the_numbers_of_its_kind():
    for card in CARDS:
        is_spell = card.kind == SPELL
        assert 1 <= card.cost <= 10
        assert (card.hp > 0) != is_spell, card.name
        assert (card.count > 0) != is_spell, card.name
        assert (card.radius > 0) == (card.delay > 0) == is_spell, card.name
        assert (card.speed > 0) == (card.kind == TROOP), card.name
        assert (card.lifetime > 0) == (card.kind == BUILDING), card.name
        assert card.damage > 0 or card.spawns, card.name
        assert len(rules.FORMATIONS[card.count]) == card.count
        assert not card.flying or card.hits_air, card.name


def test_the_board_is_the_same_from_both_sides():
    """Turned by half a circle, bridges lie on bridges, and the pocket on the enemy's own rows."""
    assert sorted(rules.WIDTH_UNITS - x for x in rules.BRIDGE_X) == sorted(rules.BRIDGE_X)
    assert sorted(rules.WIDTH - 1 - x for x in rules.BRIDGE_COLUMNS) == [2, 3, 8, 9]
    assert rules.RIVER_NEAR + rules.RIVER_FAR == rules.HEIGHT_UNITS
    assert sorted(rules.WIDTH_UNITS - x for x in rules.TOWER_X) == sorted(rules.TOWER_X)
    assert rules.POCKET_ROWS == (11, 12, 13)


def test_units_of_one_play_stand_on_its_tile():
    for places in rules.FORMATIONS:
        for x, y in places:
            assert max(abs(x), abs(y)) < rules.TILE_UNITS // 2


def test_zones_count_the_tiles_that_the_rules_leave():
    """Nine own rows of twelve, less 12 tiles of keep and twice 4 of flank towers: 88."""
    assert ZONES[TROOP].sum(axis=1).tolist() == [88, 88 + 18, 88 + 18, 88 + 36]
    assert ZONES[BUILDING].sum(axis=1).tolist() == [88] * 4
    assert ZONES[SPELL].sum(axis=1).tolist() == [240] * 4


def test_each_seat_s_pocket_opens_by_the_other_s_towers(deal):
    battles = deal(2)
    battles.tower_hp[0, 1, rules.LEFT_FLANK] = 0
    guard = CARD_IDS["Guard"]
    assert can_deploy(battles, 0, 0, guard, 11, 12)
    assert not can_deploy(battles, 0, 0, guard, 0, 12)
    assert not can_deploy(battles, 0, 1, guard, 11, 12)
    assert not can_deploy(battles, 1, 0, guard, 11, 12)


# ------------------------------------------------------------------------------- elixir and plays


def test_elixir_doubles_from_tick_600_on(battle):
    battle.tick[0], battle.elixir[0] = 595, 0
    step(battle, WAIT)
    assert battle.elixir[0].tolist() == [5, 5]
    step(battle, WAIT)
    assert battle.elixir[0].tolist() == [15, 15]


def test_a_troop_waits_a_second_and_then_walks(battle):
    """Down at tick 0; it may act in tick 11, and Guards walk 90 units a tick."""
    hand_out(battle, 0, "Guard")
    step(battle, [[at(0, 0), 0]])
    assert battle.unit_deploy[0, 0, 0] == 5
    step(battle, WAIT)
    assert (battle.unit_x[0, 0, 0], battle.unit_y[0, 0, 0]) == (500, 500)
    step(battle, WAIT)
    moved = np.hypot(battle.unit_x[0, 0, 0] - 500, battle.unit_y[0, 0, 0] - 500)
    assert 5 * 90 - 10 <= moved <= 5 * 90


def test_imps_come_four_at_a_time(battle):
    hand_out(battle, 1, "Imps")
    step(battle, [[0, at(6, 6)]])
    assert (battle.unit_card[0, 1] >= 0).sum() == 4
    assert (battle.unit_card[0, 0] < 0).all()


# ---------------------------------------------------------------------------- walking and fighting


@pytest.mark.parametrize(("x", "bridge"), [(500, 3000), (6000, 3000), (6001, 9000), (11500, 9000)])
def test_walkers_cross_the_river_on_the_nearer_bridge(battle, x, bridge):
    slot = put(battle, 0, "Guard", x, 8000)
    battle.tower_hp[0, 1, 1:] = 0
    crossings = 0
    for _ in range(60):
        step(battle, WAIT)
        y = battle.unit_y[0, 0, slot]
        if rules.RIVER_NEAR <= y <= rules.RIVER_FAR:
            crossings += 1
            assert abs(battle.unit_x[0, 0, slot] - bridge) <= rules.BRIDGE_HALF_WIDTH
        if y > rules.RIVER_FAR:
            break
    assert crossings >= 3


def test_flyers_cross_the_river_anywhere(battle):
    """From (6000, 8000) to the tower at (3000, 16000), in its sight at no bridge."""
    slot = put(battle, 0, "Drake", 6000, 8000)
    wait(battle, 4)
    assert battle.unit_y[0, 0, slot] > rules.RIVER_NEAR
    assert battle.unit_x[0, 0, slot] > 3000 + rules.BRIDGE_HALF_WIDTH


def test_a_walker_without_an_enemy_in_sight_goes_for_its_lane_s_tower_then_for_the_keep(battle):
    slot = put(battle, 0, "Guard", 2000, 8000)
    step(battle, WAIT)
    assert battle.unit_target[0, 0, slot] == rules.TOWER_TARGETS + rules.RIGHT_FLANK
    battle.tower_hp[0, 1, rules.RIGHT_FLANK] = 0
    step(battle, WAIT)
    assert battle.unit_target[0, 0, slot] == rules.TOWER_TARGETS + rules.KEEP


def test_units_turn_on_the_nearest_enemy_in_sight(battle):
    """Seat 1's (4000, 13000) is (8000, 7000) for seat 0: 1 tile away; the other one is 2 away."""
    slot = put(battle, 0, "Guard", 7000, 7000)
    put(battle, 1, "Guard", 3000, 13000)
    near = put(battle, 1, "Guard", 4000, 13000)
    step(battle, WAIT)
    assert battle.unit_target[0, 0, slot] == near


def test_only_those_who_hit_air_turn_on_flyers(battle):
    guard = put(battle, 0, "Guard", 6000, 8000)
    longshot = put(battle, 0, "Longshot", 6000, 8000)
    drake = put(battle, 1, "Drake", 6000, 9000)
    step(battle, WAIT)
    assert battle.unit_target[0, 0, guard] == rules.TOWER_TARGETS + rules.RIGHT_FLANK
    assert battle.unit_target[0, 0, longshot] == drake


def test_a_colossus_walks_past_troops_and_turns_on_a_building_in_sight(battle):
    slot = put(battle, 0, "Colossus", 6000, 8000)
    put(battle, 1, "Guard", 6000, 11500)
    step(battle, WAIT)
    assert battle.unit_target[0, 0, slot] >= rules.TOWER_TARGETS
    turret = put(battle, 1, "Turret", 6500, 8500)
    step(battle, WAIT)
    assert battle.unit_target[0, 0, slot] == turret


def test_an_attack_comes_every_period(battle):
    """A Guard at the wall of a flank tower (1,000 + 1,200 off) strikes 165 in ticks 1, 13, 25."""
    put(battle, 0, "Guard", 3000, 16000 - 2200)
    battle.unit_hp[0, 0, 0] = 1500
    wait(battle, 1)
    assert battle.tower_hp[0, 1, rules.RIGHT_FLANK] == 2500 - 165
    wait(battle, 1)
    assert battle.tower_hp[0, 1, rules.RIGHT_FLANK] == 2500 - 165
    wait(battle, 1)
    assert battle.tower_hp[0, 1, rules.RIGHT_FLANK] == 2500 - 330


def test_both_may_kill_each_other_in_one_tick(battle):
    one, two = put(battle, 0, "Cleaver", 6000, 8000), put(battle, 1, "Cleaver", 6000, 11500)
    battle.unit_hp[0, :, 0] = 500
    step(battle, WAIT)
    assert battle.unit_card[0, 0, one] == battle.unit_card[0, 1, two] == -1


def test_a_splash_hurts_what_stands_around_the_target_and_nothing_else(battle):
    """The second and the third Guard are 1.6 and 1.7 tiles from the first."""
    silence_towers(battle)
    put(battle, 0, "Pyre mage", 6000, 7000)
    put(battle, 1, "Guard", 6000, 10000)
    put(battle, 1, "Guard", 6000 + 1600, 10000)
    put(battle, 1, "Guard", 6000 + 1700, 10000)
    battle.unit_deploy[0, 1, :3] = 10
    step(battle, WAIT)
    assert (1500 - battle.unit_hp[0, 1, :3]).tolist() == [240, 240, 0]


def test_towers_shoot_what_comes_near_and_only_an_awake_keep_does(battle):
    """A Guard 4.5 tiles from the keep and more than 7 from the flanks; then with a keep awake."""
    battle.tower_hp[0, 0, 1:] = [2500, 2500]
    put(battle, 1, "Guard", 6000, 20000 - 6000)
    battle.unit_deploy[0, 1, 0] = 10
    battle.tower_cooldown[0, 0, 1:] = 8
    step(battle, WAIT)
    assert battle.unit_hp[0, 1, 0] == 1500
    battle.keep_awake[0, 0] = 1
    battle.tower_cooldown[0, 0, 1:] = 8
    step(battle, WAIT)
    assert battle.unit_hp[0, 1, 0] == 1400


def test_a_hit_or_a_fallen_flank_tower_wakes_the_keep(battle):
    cast(battle, 0, "Jolt", 6000, 18500)
    assert battle.keep_awake[0].tolist() == [0, 0]
    step(battle, WAIT)
    assert battle.keep_awake[0].tolist() == [0, 1]
    battle.tower_hp[0, 0, rules.LEFT_FLANK] = 1
    cast(battle, 1, "Jolt", 9000, 16000)
    step(battle, WAIT)
    assert battle.tower_hp[0, 0, rules.LEFT_FLANK] == 0
    assert battle.keep_awake[0].tolist() == [1, 1]


# --------------------------------------------------------------------------- spells and buildings


def test_a_spell_lands_after_its_delay_and_towers_take_30_percent(battle):
    """A Firebomb takes ten ticks; 30 % of 640 is 192."""
    cast(battle, 0, "Firebomb", 3000, 16000)
    wait(battle, 1)
    assert battle.tower_hp[0, 1].tolist() == [4000, 2500, 2500]
    assert battle.spell_delay[0, 0, 0] == 5
    wait(battle, 1)
    assert battle.tower_hp[0, 1].tolist() == [4000, 2500, 2500 - 192]
    assert battle.spell_card[0, 0, 0] == -1


def test_a_spell_hits_everything_of_the_enemy_within_its_radius_and_nothing_of_its_own(battle):
    """Jolt reaches 2.5 tiles, to the middle of a Turret too, and hits flyers."""
    silence_towers(battle)
    put(battle, 1, "Guard", 6000 - 2500, 11000)
    put(battle, 1, "Guard", 6000 - 2501, 11000)
    put(battle, 1, "Turret", 6000, 11000 - 2500)
    put(battle, 1, "Drake", 6000, 11000)
    put(battle, 0, "Guard", 6000, 9000)
    battle.unit_deploy[0] = 20
    cast(battle, 0, "Jolt", 6000, 9000)
    step(battle, WAIT)
    assert battle.unit_hp[0, 1, :4].tolist() == [1300, 1500, 560, 750]
    assert battle.unit_hp[0, 0, 0] == 1500


def test_a_stun_stops_a_unit_for_nine_ticks_and_is_still_to_be_seen_after_the_decision(battle):
    """Jolt lands in tick 2; the Guard rests in ticks 3 to 11 and walks again in tick 12."""
    slot = put(battle, 1, "Guard", 6000, 6000)
    battle.tower_cooldown[0, 0] = 10
    cast(battle, 0, "Jolt", 6000, 14000)
    step(battle, WAIT)
    place = battle.unit_y[0, 1, slot]
    assert battle.unit_stun[0, 1, slot] == 6
    assert battle.unit_stunned[0, 1, slot] == 1
    step(battle, WAIT)
    assert (battle.unit_stun[0, 1, slot], battle.unit_y[0, 1, slot]) == (1, place)
    step(battle, WAIT)
    assert battle.unit_stun[0, 1, slot] == 0
    assert battle.unit_stunned[0, 1, slot] == 0
    assert battle.unit_y[0, 1, slot] > place


def test_a_stunned_tower_does_not_shoot(battle):
    """It would shoot in tick 3; the stun of tick 2 puts that off to tick 12."""
    silence_towers(battle)
    put(battle, 1, "Colossus", 9000, 14000)
    cast(battle, 1, "Jolt", 9000, 16000)
    battle.tower_cooldown[0, 0, rules.LEFT_FLANK] = 3
    step(battle, WAIT)
    step(battle, WAIT)
    assert battle.tower_stunned[0, 0, rules.LEFT_FLANK] == 0
    assert battle.tower_stun[0, 0, rules.LEFT_FLANK] == 1
    assert battle.unit_hp[0, 1, 0] == 3400
    step(battle, WAIT)
    assert battle.unit_hp[0, 1, 0] == 3300


def test_a_burrow_lets_an_imp_out_every_35_ticks_until_it_is_gone(battle):
    """280 ticks of life: Imps in ticks 1, 36, 71, ... 246, which are eight."""
    put(battle, 0, "Burrow", 6500, 500)
    battle.tower_cooldown[0] = 0
    born = 0
    for _ in range(56):
        before = (battle.unit_card[0, 0] == CARD_IDS["Imps"]).sum()
        step(battle, WAIT)
        born += max(0, (battle.unit_card[0, 0] == CARD_IDS["Imps"]).sum() - before)
    # Nobody hurts an Imp before it has crossed the river, so the first is alive for 8 s at least.
    assert 7 <= born <= 8
    assert CARD_IDS["Burrow"] not in battle.unit_card[0, 0]


def test_a_turret_stands_30_s(battle):
    put(battle, 0, "Turret", 6500, 4500)
    wait(battle, 59)
    assert battle.unit_life[0, 0, 0] == 5
    wait(battle, 1)
    assert battle.unit_card[0, 0, 0] == -1


def test_whoever_loses_its_target_chooses_in_the_next_tick(battle):
    """The first Guard dies in tick 1 of a decision; in tick 2 the Cleaver has the second one."""
    slot = put(battle, 0, "Cleaver", 6000, 7000)
    first, second = put(battle, 1, "Guard", 6000, 12000), put(battle, 1, "Guard", 6000, 10000)
    battle.unit_hp[0, 1, first] = 1
    battle.unit_deploy[0, 1, :2] = 30
    step(battle, WAIT)
    assert battle.unit_card[0, 1, first] == -1
    assert battle.unit_target[0, 0, slot] == second


# ---------------------------------------------------------------------------------------- the end


def end_state(battle: Battles, tick: int, crowns=(0, 0)) -> None:
    """Put a battle five ticks before ``tick``, with crowns taken from the left flank upwards."""
    battle.tick[0] = tick - 5
    for s in range(2):
        battle.crowns[0, s] = crowns[s]
        battle.tower_hp[0, 1 - s, 1 : 1 + crowns[s]] = 0


def test_a_fallen_keep_is_three_crowns_and_the_end_at_once(battle):
    battle.tower_hp[0, 1, rules.KEEP] = 60
    cast(battle, 0, "Jolt", 6000, 18500)
    step(battle, WAIT)
    assert battle.outcome[0] == rules.SEAT_0_WON
    assert battle.crowns[0].tolist() == [3, 0]
    assert battle.tick[0] == 2


def test_both_keeps_in_one_tick_are_a_draw_whoever_led(battle):
    end_state(battle, 500, crowns=(2, 0))
    battle.tower_hp[0, :, rules.KEEP] = 60
    for s in range(2):
        cast(battle, s, "Jolt", 6000, 18500)
    step(battle, WAIT)
    assert battle.outcome[0] == rules.DRAWN
    assert battle.crowns[0].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("crowns", "outcome"),
    [((1, 0), rules.SEAT_0_WON), ((1, 2), rules.SEAT_1_WON), ((1, 1), rules.RUNNING)],
)
def test_crowns_decide_at_the_end_of_regulation(battle, crowns, outcome):
    end_state(battle, rules.REGULATION_TICKS, crowns)
    step(battle, WAIT)
    assert battle.outcome[0] == outcome


def test_a_lead_before_the_end_of_regulation_decides_nothing(battle):
    end_state(battle, rules.REGULATION_TICKS - 5, (2, 0))
    step(battle, WAIT)
    assert battle.outcome[0] == rules.RUNNING


def test_the_first_lead_wins_in_overtime(battle):
    end_state(battle, 1500, (1, 1))
    battle.tower_hp[0, 0, rules.RIGHT_FLANK] = 1
    cast(battle, 1, "Jolt", 3000, 16000)
    step(battle, WAIT)
    assert battle.outcome[0] == rules.SEAT_1_WON
    assert battle.tick[0] == 1497


@pytest.mark.parametrize(
    ("weakest", "outcome"),
    [
        ((100, 99), rules.SEAT_0_WON),
        ((99, 100), rules.SEAT_1_WON),
        ((100, 100), rules.DRAWN),
    ],
)
def test_the_weakest_surviving_tower_decides_at_the_cap(battle, weakest, outcome):
    end_state(battle, rules.CAP_TICKS, (1, 1))
    battle.tower_hp[0, :, rules.RIGHT_FLANK] = weakest
    step(battle, WAIT)
    assert battle.outcome[0] == outcome
    assert battle.tick[0] == rules.CAP_TICKS


def test_two_seats_that_never_play_draw_at_the_cap(battle):
    wait(battle, 359)
    assert battle.outcome[0] == rules.RUNNING
    wait(battle, 1)
    assert (battle.outcome[0], battle.tick[0]) == (rules.DRAWN, 1800)


@pytest.mark.parametrize("kind", [TROOP, BUILDING, SPELL])
def test_every_kind_of_card_is_in_the_table(kind):
    assert (kind == KIND).any()
