"""The layout of the state: fields are views of rows, rows are battles, blanks are fixed."""

import numpy as np

from royale_client.envs.arena import rules
from royale_client.envs.arena.kernels import step
from royale_client.envs.arena.layout import (
    HEAD_FIELDS,
    HEAD_WORDS,
    ROW_WORDS,
    SEAT_FIELDS,
    SEAT_WORDS,
)
from royale_client.envs.arena.state import Battles, copy, empty, views_of

FIELDS = HEAD_FIELDS | SEAT_FIELDS


def test_battles_hold_exactly_the_fields_of_the_layout():
    assert Battles._fields == ("raw", *FIELDS)


def test_every_field_has_its_declared_shape_and_type():
    battles = empty(3)
    for name, field in FIELDS.items():
        array = getattr(battles, name)
        seats = (2,) if name in SEAT_FIELDS else ()
        assert array.shape == (3, *seats, *field.tail), name
        assert array.dtype == field.dtype, name


def test_no_two_fields_share_a_word_and_only_padding_has_none():
    battles = views_of(np.zeros((2, ROW_WORDS), np.int32))
    for name in FIELDS:
        array = getattr(battles, name)
        assert not array.any(), name
        array[:] = 1
    words = sum(field.words for field in HEAD_FIELDS.values())
    assert words == HEAD_WORDS
    # 64-bit numbers equal to one are a word of 1 and a word of 0.
    zeros = (battles.raw[0] == 0).sum() - 3
    assert zeros == 2 * (SEAT_WORDS - sum(field.words for field in SEAT_FIELDS.values()))


def test_empty_battles_are_over_and_blank():
    battles = empty(2)
    assert (battles.outcome == rules.DRAWN).all()
    for name, field in FIELDS.items():
        assert (getattr(battles, name) == field.blank).all(), name


def test_a_copy_is_apart(deal):
    battles = deal(2)
    twin = copy(battles)
    twin.elixir[:] = 0
    assert (battles.elixir == rules.ELIXIR_START).all()


def test_numbers_stay_in_their_declared_ranges_and_free_slots_blank(deal, random_actions):
    battles, draws = deal(32, seed=6), np.random.default_rng(41)
    while (battles.outcome == rules.RUNNING).any():
        step(battles, random_actions(battles, draws, wait=0.5))
        for name, field in FIELDS.items():
            values = getattr(battles, name)
            assert field.low <= int(values.min()), name
            assert int(values.max()) <= field.high, name
        for prefix in ("unit_", "spell_"):
            is_free = getattr(battles, f"{prefix}card") < 0
            for name, field in SEAT_FIELDS.items():
                if name.startswith(prefix):
                    assert (getattr(battles, name)[is_free] == field.blank).all(), name
