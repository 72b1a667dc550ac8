"""What a seat sees: planes and columns by hand, nothing hidden, the same from both seats."""

import numpy as np
import pytest

from royale_client.envs.arena import columns, layout, rules, state
from royale_client.envs.arena.bots import bot_keys, make_bot
from royale_client.envs.arena.cards import CARD_IDS
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.tensors import PLANES_SHAPE, STATIC_PLANES, observe

PLANE = {plane.name: plane.index for plane in columns.PLANES}
COLUMN = {each.name: slice(each.first, each.end) for each in columns.COLUMNS}


def seen(battles):
    """Return planes, vector and mask of all battles; the arrays hold rubbish before."""
    n = len(battles.tick)
    planes = np.full((n, 2, *PLANES_SHAPE), 77, np.uint8)
    vector = np.full((n, 2, columns.VECTOR_SIZE), 7, np.float32)
    mask = np.ones((n, 2, rules.ACTIONS), np.bool_)
    observe(battles, planes, vector, mask)
    return planes, vector, mask


def play(battles, decisions, bot="random"):
    everyone = np.ones((len(battles.tick), 2), np.bool_)
    keys = bot_keys(battles)
    for _ in range(decisions):
        step(battles, make_bot(bot).act(battles, everyone, keys))


def put(battles, seat, slot, card, *, at, hp):
    battles.unit_card[0, seat, slot] = CARD_IDS[card]
    battles.unit_x[0, seat, slot], battles.unit_y[0, seat, slot] = at
    battles.unit_hp[0, seat, slot] = hp


def test_the_tables_have_no_gap_and_no_name_twice():
    assert [plane.index for plane in columns.PLANES] == list(range(18))
    ends = [0, *(each.end for each in columns.COLUMNS)]
    assert [each.first for each in columns.COLUMNS] == ends[:-1]
    assert columns.VECTOR_SIZE == 195
    names = [each.name for each in (*columns.PLANES, *columns.COLUMNS)]
    assert len(set(names)) == len(names)
    assert {each.name: each.count for each in columns.COLUMNS}["clock"] == 3


def test_the_documentation_tables_name_every_plane_and_column():
    text = columns.markdown_tables()
    for each in (*columns.PLANES, *columns.COLUMNS):
        assert f"| {each.name} |" in text
    assert "| 2–69 | hand |" in text  # 4 slots of 17, after the two elixirs
    assert "| 194 | enemy deck known |" in text


def test_towers_fill_their_blocks_in_the_frame_of_who_looks(deal):
    battles = deal(1)
    battles.tower_hp[0, 1] = (3990, 2500, 0)  # the enemy's right flank, on my left, has fallen
    planes = seen(battles)[0][0, 0]
    own, enemy = planes[PLANE["own towers"]], planes[PLANE["enemy towers"]]
    assert own.sum() == 12 + 4 + 4
    assert own[0:3, 4:8].all()
    assert own[3:5, 2:4].all()
    assert own[3:5, 8:10].all()
    assert enemy.sum() == 12 + 4
    assert enemy[17:20, 4:8].all()
    assert enemy[15:17, 8:10].all()
    assert planes[PLANE["own hp"], 0, 4] == 200  # 4000 / 20
    assert planes[PLANE["enemy hp"], 19, 4] == 200  # 3990 / 20, rounded up
    assert planes[PLANE["enemy hp"], 16, 2] == 0
    assert planes[PLANE["own card"], 3, 2] == 1
    assert planes[PLANE["enemy card"], 15, 9] == 1


def test_units_stand_on_their_tile_and_mirrored_for_the_enemy(deal):
    battles = deal(1)
    put(battles, 0, 3, "Guard", at=(2500, 6999), hp=41)
    put(battles, 0, 5, "Imps", at=(2000, 6000), hp=20)
    put(battles, 1, 0, "Drake", at=(0, 12000), hp=950)
    put(battles, 1, 1, "Turret", at=(12000, 20000), hp=1)  # on the far edge: the last tile
    planes = seen(battles)[0][0]
    mine, theirs = planes
    assert mine[PLANE["own ground"], 6, 2] == 2
    assert mine[PLANE["own hp"], 6, 2] == 3 + 1  # ceil(41 / 20) + ceil(20 / 20)
    assert mine[PLANE["own card"], 6, 2] == 2 + CARD_IDS["Imps"]  # 6 is the greater id
    assert mine[PLANE["enemy air"], 19 - 12, 11] == 1
    assert mine[PLANE["enemy hp"], 7, 11] == 48  # ceil(950 / 20)
    assert mine[PLANE["enemy buildings"], 0, 0] == 1
    assert theirs[PLANE["own air"], 12, 0] == 1
    assert theirs[PLANE["enemy ground"], 13, 9] == 2
    assert mine[PLANE["own ground"]].sum() == 2
    assert mine[PLANE["enemy ground"]].sum() == 0


def test_hit_points_on_a_tile_stop_at_255(deal):
    battles = deal(1)
    for slot in range(2):
        put(battles, 0, slot, "Colossus", at=(6500, 8500), hp=3400)  # 170 levels each
    assert seen(battles)[0][0, 0, PLANE["own hp"], 8, 6] == 255


def test_deploying_and_stunned_are_shown(deal):
    battles = deal(1)
    put(battles, 1, 2, "Guard", at=(500, 500), hp=100)
    put(battles, 1, 4, "Guard", at=(600, 600), hp=100)
    battles.unit_deploy[0, 1, 2] = 4
    battles.unit_deploy[0, 1, 4] = 9
    battles.unit_stunned[0, 1, 4] = 1  # was, and is no longer
    battles.tower_stun[0, 0, rules.LEFT_FLANK] = 3
    planes = seen(battles)[0][0, 0]
    assert planes[PLANE["enemy deploying"], 19, 11] == 9
    assert planes[PLANE["enemy deploying"]].sum() == 9
    assert planes[PLANE["enemy stunned"], 19, 11] == 1
    assert planes[PLANE["enemy stunned"]].sum() == 1
    assert planes[PLANE["own stunned"]].sum() == 4
    assert planes[PLANE["own stunned"], 3, 2] == 1


def test_a_spell_covers_the_tiles_whose_middle_it_will_hit(deal):
    battles = deal(1)
    battles.spell_card[0, 1, 0] = CARD_IDS["Firebomb"]
    battles.spell_x[0, 1, 0] = 500  # middle of the enemy's tile (0, 0): my tile (11, 19)
    battles.spell_y[0, 1, 0] = 500
    battles.spell_delay[0, 1, 0] = 5
    planes = seen(battles)[0][0]
    # Radius 2.5 tiles: (0..2, 0), (0..2, 1), (0, 2), (1, 2) away; (2, 2) is 2.83 away.
    expected = np.zeros((20, 12), np.uint8)
    for dx, dy in ((0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2)):
        expected[19 - dy, 11 - dx] = 2 + CARD_IDS["Firebomb"]
    np.testing.assert_array_equal(planes[0, PLANE["enemy spell"]], expected)
    np.testing.assert_array_equal(planes[1, PLANE["own spell"]], expected[::-1, ::-1])


def test_the_vector_of_a_first_state(deal):
    battles = deal(1)
    vector = seen(battles)[1][0, 0]
    hand = vector[COLUMN["hand"]].reshape(4, 17)
    assert hand.sum() == 4
    np.testing.assert_array_equal(hand.argmax(1) - 1, battles.hand[0, 0])
    assert vector[COLUMN["own elixir"]] == vector[COLUMN["enemy elixir"]] == 0.5
    assert vector[COLUMN["next card"]].argmax() - 1 == battles.queue[0, 0, 0]
    np.testing.assert_array_equal(np.flatnonzero(vector[COLUMN["own deck"]]), battles.deck[0, 0])
    assert vector[COLUMN["enemy seen"]].sum() == 0
    np.testing.assert_array_equal(vector[COLUMN["enemy hand"]], np.full(16, 4 / 16, np.float32))
    assert (
        vector[COLUMN["own last card"]].argmax() == vector[COLUMN["enemy last card"]].argmax() == 0
    )
    assert vector[COLUMN["own tower hp"]].tolist() == [1, 1, 1]
    assert vector[COLUMN["clock"]].tolist() == [0, 1, 0]
    assert vector[COLUMN["elixir rate"]].tolist() == [1, 0]
    assert vector[COLUMN["own play age"]] == vector[COLUMN["enemy play age"]] == 1


def test_the_enemy_flanks_are_told_as_this_seat_sees_them(deal):
    battles = deal(1)
    battles.tower_hp[0, 1] = (1000, 500, 2500)
    battles.tick[0] = 1500
    battles.crowns[0] = (1, 2)
    battles.keep_awake[0] = (1, 0)
    battles.last_play_tick[0] = (1450, 100)
    vector = seen(battles)[1][0, 0]
    np.testing.assert_allclose(vector[COLUMN["enemy tower hp"]], [0.25, 1, 0.2])
    np.testing.assert_allclose(vector[COLUMN["crowns"]], [1 / 3, 2 / 3])
    assert vector[COLUMN["keep awake"]].tolist() == [1, 0]
    np.testing.assert_allclose(vector[COLUMN["clock"]], [1500 / 1800, 0, 1])
    assert vector[COLUMN["elixir rate"]].tolist() == [0, 1]
    assert vector[COLUMN["own play age"]] == 0.25
    assert vector[COLUMN["enemy play age"]] == 1


def test_numbers_stay_within_their_range_in_real_play(deal):
    battles = deal(32)
    for _ in range(20):
        play(battles, 20)
        planes, vector, _ = seen(battles)
        assert vector.min() >= 0
        assert vector.max() <= 1
        assert planes[:, :, [PLANE["own card"], PLANE["enemy card"]]].max() <= 17
        assert planes[:, :, [PLANE["own stunned"], PLANE["enemy stunned"]]].max() <= 1
    assert (battles.outcome != rules.RUNNING).all()


def test_nothing_hidden_of_the_enemy_shows(deal):
    battles = deal(24)
    play(battles, 60)
    before = [array[:, 0].copy() for array in seen(battles)]
    draws = np.random.default_rng(3)
    changed = 0
    for i in range(24):
        plays = min(battles.plays[i, 1], 4)
        bits = battles.seen[i, 1]
        hidden = [card for card in range(16) if not bits >> card & 1]
        swap = dict(zip(hidden, draws.permutation(hidden), strict=True))
        for cards in (battles.hand[i, 1], battles.queue[i, 1], battles.deck[i, 1]):
            cards[:] = [swap.get(int(card), card) for card in cards]
        # Which unseen card lies where: hand and the part of the queue that was not played.
        lying = np.concatenate([battles.hand[i, 1], battles.queue[i, 1, : 4 - plays]])
        lying = draws.permutation(lying)
        battles.hand[i, 1], battles.queue[i, 1, : 4 - plays] = lying[:4], lying[4:]
        battles.elixir[i, 1] = draws.integers(0, rules.ELIXIR_CAP)
        changed += len(hidden) > 8
    assert changed > 3  # battles in which a card of the deck was still unseen
    for array, old in zip(seen(battles), before, strict=True):
        np.testing.assert_array_equal(array[:, 0], old)


def test_the_hand_deduced_from_plays_never_contradicts_the_true_one(deal):
    battles = deal(16)
    exact = 0
    for _ in range(30):
        play(battles, 8, "random_wait")
        deduced = seen(battles)[1][:, 0, COLUMN["enemy hand"]]
        np.testing.assert_allclose(deduced.sum(1), 4, rtol=1e-5)
        for i in range(16):
            held = np.isin(np.arange(16), battles.hand[i, 1])
            assert held[deduced[i] == 1].all()
            assert not held[deduced[i] == 0].any()
            # Once all eight cards were seen the hand is known, and never before.
            knows_all = int(battles.seen[i, 1]).bit_count() == 8
            assert np.isin(deduced[i], (0, 1)).all() == knows_all
            exact += knows_all
    assert exact > 50


def test_mirrored_battles_look_the_same_from_exchanged_seats(deal):
    battles = deal(32)
    for bot in ("random", "heuristic"):
        play(battles, 50, bot)
        twins = state.copy(battles)
        blocks = twins.raw[:, layout.HEAD_WORDS :].reshape(32, 2, layout.SEAT_WORDS)
        blocks[:] = blocks[:, ::-1].copy()
        for here, there in zip(seen(battles), seen(twins), strict=True):
            assert here[:, ::-1].tobytes() == there.tobytes()


def test_the_order_of_unit_slots_does_not_show(deal):
    battles = deal(16)
    play(battles, 80)
    before = seen(battles)[0]
    order = np.random.default_rng(5).permutation(rules.UNIT_SLOTS)
    for name in (name for name in layout.SEAT_FIELDS if name.startswith("unit_")):
        getattr(battles, name)[:] = getattr(battles, name)[..., order]
    np.testing.assert_array_equal(seen(battles)[0], before)


def test_the_static_planes_are_the_same_for_both_seats_and_cannot_be_changed():
    np.testing.assert_array_equal(STATIC_PLANES, STATIC_PLANES[:, ::-1, ::-1])
    assert (STATIC_PLANES[0, 9:11] == 2).sum() == 2 * 4  # two bridges, two tiles wide
    with pytest.raises(ValueError, match="read-only"):
        STATIC_PLANES[0, 0, 0] = 1


@pytest.mark.parametrize("which", range(3))
def test_arrays_that_do_not_fit_are_refused_by_name(deal, which):
    battles = deal(2)
    arrays = list(seen(battles))
    arrays[which] = arrays[which][:1]
    with pytest.raises(ValueError, match=("planes", "vector", "mask")[which]):
        observe(battles, *arrays)
