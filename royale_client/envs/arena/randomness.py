"""Random numbers by key and counter: the same number for the same question, whoever asks and when.

A key is made of (seed, battle, ordinal, purpose); number n of a key needs none of the numbers
before it. Every function stands here twice: compiled for the kernels, and as plain Python
(``plain_…``) for the reference; tests compare them. Nothing here has a state.

Source:
    The mixing function and the increment are those of SplitMix64 (Steele, Lea, Flood: Fast
    splittable pseudorandom number generators, OOPSLA 2014).
"""

from __future__ import annotations

import numpy as np

from royale_client.envs.arena.compiled import compiled

PURPOSE_DECK = (0, 1)
"""Which cards a seat's deck holds, by seat."""
PURPOSE_ORDER = (2, 3)
"""In which order a seat's deck is dealt, by seat."""
PURPOSE_BOT = (4, 5)
"""What a scripted bot draws, by seat."""

_MASK = 2**64 - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN_U8, _FIRST_U8, _SECOND_U8 = np.uint64(_GOLDEN), np.uint64(_FIRST), np.uint64(_SECOND)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_ONE = np.uint64(1)


@compiled
def mix(value: np.uint64) -> np.uint64:
    """Return 64 bits, each of which depends on every bit of ``value``."""
    value = (value ^ (value >> _S30)) * _FIRST_U8
    value = (value ^ (value >> _S27)) * _SECOND_U8
    return value ^ (value >> _S31)


@compiled
def random_key(seed: int | np.uint64, battle: int, ordinal: int, purpose: int) -> np.uint64:
    """Return the key of one purpose in one episode of one battle; numbers are mod 2^64."""
    key = mix(np.uint64(seed) + _GOLDEN_U8)
    key = mix((key ^ np.uint64(battle)) + _GOLDEN_U8)
    key = mix((key ^ np.uint64(ordinal)) + _GOLDEN_U8)
    return mix((key ^ np.uint64(purpose)) + _GOLDEN_U8)


@compiled
def random_bits(key: np.uint64, counter: int) -> np.uint64:
    """Return number ``counter`` of a key: 64 bits, evenly distributed."""
    return mix(key + (np.uint64(counter) + _ONE) * _GOLDEN_U8)


@compiled
def random_below(key: np.uint64, counter: int, bound: int) -> np.int64:
    """Return number ``counter`` of a key in ``[0, bound)``, for ``0 < bound < 2^32``.

    By multiplication, so a value's share is off by at most ``bound / 2^32`` of itself.
    """
    return np.int64(((random_bits(key, counter) >> _S32) * np.uint64(bound)) >> _S32)


def plain_mix(value: int) -> int:
    """`mix` in Python's integers."""
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def plain_random_key(seed: int, battle: int, ordinal: int, purpose: int) -> int:
    """`random_key` in Python's integers."""
    key = 0
    for word in (seed, battle, ordinal, purpose):
        key = plain_mix(((key ^ (word & _MASK)) + _GOLDEN) & _MASK)
    return key


def plain_random_bits(key: int, counter: int) -> int:
    """`random_bits` in Python's integers."""
    return plain_mix((key + (counter + 1) * _GOLDEN) & _MASK)


def plain_random_below(key: int, counter: int, bound: int) -> int:
    """`random_below` in Python's integers."""
    return ((plain_random_bits(key, counter) >> 32) * bound) >> 32
